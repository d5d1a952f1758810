"""Comparison of drop-in layers and originals: weights, results and derivatives."""

import copy

import torch

FACTORS = 1.0, 0.9, 0.8, 0.7, 0.6
"""Factors of the inputs, for more cases of the same kind."""

NODES, EDGES = 30, 120


def draw(*shape):
    return torch.randn(shape, dtype=torch.float64)


def edges(num_src=NODES, num_dst=NODES, count=EDGES):
    """Return edges with duplicates, self loops and isolated nodes."""
    index = torch.stack([torch.randint(0, max(n - 3, 1), (count,)) for n in (num_src, num_dst)])
    if count:
        index[:, 1] = index[:, 0]
        index[:, 2:4] = 0
    return index


def leaves(arguments, dtype):
    """Return floating-point tensors as leaves of a type, other arguments unchanged."""

    def leaf(value):
        if isinstance(value, tuple):
            return tuple(leaf(v) for v in value)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            if value.layout is not torch.strided:
                return value.detach().to(dtype)
            return value.detach().to(dtype, copy=True).requires_grad_()
        return value

    return [leaf(a) for a in arguments]


def flat(values):
    for value in values:
        if isinstance(value, tuple | list):
            yield from flat(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            yield value.to_dense() if value.layout is not torch.strided else value


def energy(outputs):
    """Return a scalar with random first and second derivatives by all outputs."""
    generator = torch.Generator().manual_seed(5)
    total = 0
    for y in outputs:
        weight = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
        total = total + (weight * y).sum() + 0.5 * (weight * y * y).sum()
    return total


def results(layer, arguments, dtype, order=2, seed=3, module=None):
    """Return outputs, gradients by inputs and parameters, and gradients of a scalar of these.

    `module` has the parameters, if the layer is a function that wraps it.
    """
    if module is None:
        layer = module = copy.deepcopy(layer).to(dtype)
    given = leaves(arguments, dtype)
    torch.manual_seed(seed)
    outputs = [*flat([layer(*given)])]
    inputs = [t for t in flat(given) if t.is_leaf and t.requires_grad] + [*module.parameters()]
    first = torch.autograd.grad(
        energy(outputs), inputs, create_graph=order > 1, allow_unused=True, materialize_grads=True
    )
    second = []
    if order > 1 and any(g.requires_grad for g in first):
        second = torch.autograd.grad(
            energy(first), inputs, allow_unused=True, materialize_grads=True
        )
    return [[t.detach().double() for t in some] for some in (outputs, first, second)]


def distances(found, truth):
    """Return the largest scaled difference, and the sum of squares of the scaled differences.

    The scale is the largest magnitude of each tensor, at least a hundredth of that of its group:
    gradients may be 0 but for rounding. Equal infinities and two NaN do not differ.
    """
    largest, squares = [0.0], 0.0
    for some, others in zip(found, truth, strict=True):
        assert len(some) == len(others)
        top = max(map(magnitude, others), default=0.0)
        for one, other in zip(some, others, strict=True):
            assert one.shape == other.shape
            if one.numel():
                same = (one == other) | (one.isnan() & other.isnan())
                scale = max(magnitude(other), top / 100) or 1.0
                difference = torch.where(same, 0.0, (one - other) / scale).nan_to_num(torch.inf)
                largest.append(float(difference.abs().max()))
                squares += float(difference.square().mean())
    return max(largest), squares


def magnitude(tensor):
    """Return the largest finite magnitude."""
    return float(tensor.abs().nan_to_num(0.0, 0.0).max()) if tensor.numel() else 0.0


def check_same(original, drop_in, arguments, order=2, single=True):
    """Assert equality in float64, and at most twice the original's error in float32.

    If `single` is False, skips float32: there are too few elements to compare rounding errors.
    """
    drop_in.load_state_dict(original.state_dict())
    drop_in.train(original.training)
    truth = results(original, arguments, torch.float64, order)
    found = results(drop_in, arguments, torch.float64, order)
    assert distances(found, truth)[0] < 1e-12
    if not single or (original.training and getattr(original, "dropout", 0)):
        return  # dropout masks differ in float32
    totals = [0.0, 0.0]
    for factor in FACTORS:  # one case may have small errors by chance
        given = [scaled(a, factor) for a in arguments]
        truth = results(original, given, torch.float64, order)
        for place, layer in enumerate((drop_in, original)):
            found = results(layer, given, torch.float32, order)
            totals[place] += distances(found, truth)[1]
        if totals[0] <= 4 * totals[1]:
            return
    raise AssertionError(f"float32: {(totals[0] / totals[1]) ** 0.5:.2f} times the original's")


def scaled(value, factor):
    if isinstance(value, tuple):
        return tuple(scaled(v, factor) for v in value)
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value * factor if floating and value.layout is torch.strided else value


def pair(originals, drop_ins, name, *arguments, **options):
    """Return layers of both packages, created from the same random seed."""
    made = []
    for package in (originals, drop_ins):
        torch.manual_seed(1)
        made.append(getattr(package, name)(*arguments, **options))
    return made


def check_alike(original, drop_in):
    """Assert equal `repr`, and equal names and shapes of parameters."""
    assert repr(drop_in) == repr(original)
    shapes = [{k: tuple(v.shape) for k, v in m.state_dict().items()} for m in (original, drop_in)]
    assert shapes[0] == shapes[1]
    assert [*shapes[0]] == [*shapes[1]]
    for one, other in zip(original.parameters(), drop_in.parameters(), strict=True):
        assert torch.equal(one, other)
    original.load_state_dict(drop_in.state_dict())
    drop_in.load_state_dict(original.state_dict())
