"""Tensors of half precision, and layers under autocast beside their originals."""

import copy
import functools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402
from pyops.torch import _call, nn  # noqa: E402

from ...support.small_cases import OPERATORS  # noqa: E402
from .examples import Example  # noqa: E402
from .layer_cases import CASES, LARGER  # noqa: E402

TYPES = [torch.float16, torch.bfloat16]
FEW = ["gat", "gno_conv", "dimenet_aggregate", "edge_update", "multiply", "mean"]


class Half(Example):
    """An example in half precision, and in float32 with the same values."""

    def __init__(self, name, kind):
        super().__init__(name, dtype=torch.float32)
        self.tensors = [t.to(kind) for t in self.tensors]
        self.kind = kind

    @property
    def wide(self):
        return [t.float() for t in self.tensors]


def derivatives(example, tensors, kind):
    """Return y, gradients, their gradients and a tangent, for cotangents of half precision."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    rng = np.random.default_rng(3)

    def draw(like):
        drawn = torch.from_numpy(rng.standard_normal(tuple(like.shape)))
        return drawn.to(kind).to(like.dtype)

    y = example(*leaves)
    gy = draw(y).requires_grad_()
    first = torch.autograd.grad(y, leaves, gy, create_graph=True, allow_unused=True)
    some = [g is not None and g.requires_grad for g in first]
    pairs = [(g, draw(g)) for g, kept in zip(first, some, strict=True) if kept]
    second = torch.autograd.grad(
        [g for g, _ in pairs], [*leaves, gy], [h for _, h in pairs], allow_unused=True
    )
    tangent = torch.func.jvp(example, tuple(tensors), tuple(draw(t) for t in tensors))[1]
    return [y, *first, *second, tangent]


def test_rows_are_read_as_they_are(monkeypatch):
    """No float32 copy is made of tensors that the kernels read; results of any size are rounded."""
    copied, kind = [], torch.bfloat16
    monkeypatch.setattr(_call, "widened", lambda t: copied.append(t) or t.float())
    graph = pyops.Graph(np.arange(3000), np.roll(np.arange(3000), -1))
    for columns in 4, 64:
        x = torch.randn(3000, columns).to(kind).requires_grad_()
        y = pt.aggregate(graph, x)
        (gx,) = torch.autograd.grad(y, x, y.detach() * 2)
        assert torch.equal(y, x.roll(1, 0))
        assert torch.equal(gx, 2 * x)
    assert not copied
    edge = torch.randn(3000, 3)
    y = pt.aggregate(graph, x, edge)
    assert y.dtype is kind
    assert torch.equal(y[:, :64], x.roll(1, 0))
    assert torch.equal(y[:, 64:], edge.to(kind).roll(1, 0))
    assert any(t is x or t.shape == x.shape for t in copied)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name, kind):
    """All derivatives are the rounded ones of float32."""
    example = Half(name, kind)
    got = derivatives(example, example.tensors, kind)
    expected = derivatives(example, example.wide, kind)
    for one, other in zip(got, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == kind
            assert torch.equal(one, other.to(kind)), name


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", FEW)
def test_compiled(name, kind):
    example = Half(name, kind)
    torch._dynamo.reset()
    compiled = torch.compile(example, fullgraph=True, backend="aot_eager")
    for leaf, tensors in ((False, example.tensors), (True, example.leaves())):
        y, z = example(*tensors), compiled(*tensors)
        assert torch.equal(y, z)
        assert y.dtype == z.dtype == kind
        if leaf:
            gy = torch.ones_like(y)
            one, other = (torch.autograd.grad(v, tensors, gy) for v in (y, z))
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    batch = [torch.stack([t, 0.5 * t]) for t in example.tensors]
    mapped = torch.func.vmap(example)(*batch)
    assert torch.equal(mapped[1], example(*(b[1] for b in batch)))


def test_parameters_in_float32():
    example = Example("gat", dtype=torch.float32)
    x_src, x_dst, attention, *rest = (t.requires_grad_() for t in example.tensors)
    y = example(x_src.bfloat16(), x_dst.bfloat16(), attention, *rest)
    assert y.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(y.float().square().sum(), attention)
    assert gradient.dtype == torch.float32
    assert pt.add(x_src.bfloat16(), x_src).dtype == torch.float32
    with pytest.raises(TypeError, match=r"gat: expected one type of half precision, got torch\."):
        example(x_src.bfloat16(), x_dst.half(), attention, *rest)


ATTENTION = ["GATConv", "GATv2Conv", "TransformerConv"]
ORIGINALS = [*ATTENTION, "NNConv", "GCNConv", "SAGEConv", "GraphConv", "GINConv", "EdgeConv"]
MODES = ["autocast", "half inputs", "half model"]


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 32))


@functools.cache
def pair(name, edge_features):
    original = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    options = {"edge_dim": 3} if edge_features and name in ATTENTION else {}
    arguments = {"NNConv": (8, 4, network()), "GINConv": (torch.nn.Linear(8, 4),)}
    smooth = torch.nn.Sequential(torch.nn.Linear(16, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4))
    arguments["EdgeConv"] = (smooth, "mean")
    arguments = arguments.get(name, (8, 4, 2) if name in ATTENTION else (8, 4))
    layers = [getattr(p, name)(*copy.deepcopy(arguments), **options) for p in (original, nn)]
    layers[1].load_state_dict(layers[0].state_dict())
    for layer in layers:
        layer.negative_slope = 1.0  # roundings do not change the slope of a score near 0
    return layers


def called(layer, arguments, kind, mode):
    """Return the result and the gradients of the parameters in one of three ways."""
    if mode != "autocast":
        arguments = [a.to(kind) if a.is_floating_point() else a for a in arguments]
    if mode == "half model":
        layer = copy.deepcopy(layer).to(kind)
    with torch.autocast("cpu", dtype=kind, enabled=mode != "half model"):
        y = layer(*arguments)
    loss = y.square().sum() if y.dtype == torch.float64 else y.float().square().sum()
    gradients = torch.autograd.grad(loss, [*layer.parameters()])
    return [y, *gradients]


@pytest.mark.parametrize("edges", [30, 20_000])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("name", "edge_features"),
    [(name, name == "NNConv") for name in ORIGINALS] + [(name, True) for name in ATTENTION],
)
def test_layers(name, edge_features, kind, mode, edges):
    """The type of the result is that of the original, and the error about as large."""
    layers = pair(name, edge_features)
    generator = torch.Generator().manual_seed(1)
    nodes = max(6, edges // 20)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    x, features = (torch.randn(n, w, generator=generator) for n, w in ((nodes, 8), (edges, 3)))
    arguments = [x, index, *[features] * edge_features]
    exact = called(copy.deepcopy(layers[0]), arguments, torch.float64, "half model")
    original, own = (called(layer, arguments, kind, mode) for layer in layers)
    largest = max(float(value.norm()) for value in exact[1:])
    for one, other, value in zip(original, own, exact, strict=True):
        assert one.dtype == other.dtype
        size = max(float(value.detach().norm()), 0.1 * largest)
        errors = [float((t.double() - value).detach().norm()) / size for t in (one, other)]
        assert errors[1] <= 2 * errors[0] + torch.finfo(kind).eps


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mode", ["autocast", "half model"])
@pytest.mark.parametrize("name", [n for n in CASES if n != "NeighborSearch"])
def test_every_layer(name, mode, kind):
    """Every layer and function runs, forward and backward, close to float64."""
    half = kind
    make, draw = CASES[name]
    torch.manual_seed(0)
    layer = make().double()
    given = draw(LARGER)

    def run(layer, kind):
        def cast(value):
            if isinstance(value, tuple):
                return tuple(map(cast, value))
            return value.to(half).to(kind) if value.is_floating_point() else value

        found = layer(*map(cast, given))
        y = found[0] if isinstance(found, tuple) else found
        leaves = [*layer.parameters()]
        if not leaves:
            return (y,)
        weights = 1 + torch.arange(y.numel(), device=y.device).view(y.shape) / y.numel()
        loss = (weights.to(y.dtype) * y.square()).sum()
        return y, *torch.autograd.grad(loss, leaves, allow_unused=True)

    # the values that half precision has
    exact = run(layer.to(kind).double(), torch.float64)
    if mode == "autocast":
        with torch.autocast("cpu", dtype=kind):
            got = run(layer.float(), torch.float32)
    else:
        got = run(layer.to(kind), kind)
    sizes = [0.0 if e is None else float(e.detach().norm()) for e in exact]
    # in half precision distances are rounded, and other elements may be the largest
    rough = name == "SAGEConv max" or (name, mode) == ("DimeNetPlusPlus", "half model")
    bound = (100 if name == "DimeNetPlusPlus" else 20) * torch.finfo(kind).eps
    for one, other, size in zip(got, exact, sizes, strict=True):
        if other is not None:
            error = float((one.double() - other).detach().norm())
            limit = math.inf if rough else bound * max(size, 0.1 * max(sizes[1:], default=1))
            assert error < limit


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("width", [1, 16])
def test_long_sums(width, kind):
    """Sums and degrees of 3000 terms, which partial sums in half precision would miss."""
    index, ones = torch.zeros(3000, dtype=torch.long), torch.ones(3000, width, dtype=kind)
    assert (nn.scatter(ones, index) == torch.tensor(3000, dtype=kind)).all()
    assert (nn.scatter(ones, index, reduce="mean") == 1).all()
    offsets = torch.tensor([0, 3000])
    assert (nn.segment(ones, offsets, "mean") == 1).all()
    for given in {"index": index}, {"ptr": offsets}:
        assert (nn.softmax(0 * ones, **given) == torch.tensor(1 / 3000, dtype=kind)).all()
    edges = torch.stack([torch.arange(3000), index])
    for layer in nn.GCNConv(width, 4), nn.SAGEConv(width, 4), nn.GATConv(width, 4, aggr="mean"):
        exact = layer.double()(ones.double(), edges)
        got = layer.to(kind)(ones, edges)
        assert (got - exact).abs().max() < 8 * torch.finfo(kind).eps * exact.abs().max()


def test_training_with_a_scaler():
    """A gradient scaler finds gradients that overflow, and the loss falls."""
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    layers = nn.GATConv(8, 8, 2), nn.GATv2Conv(16, 1, 1)
    index, x = torch.randint(0, 60, (2, 400)), torch.randn(60, 8)
    target = torch.tanh(x[:, :1])
    for number, layer in enumerate(layers):
        model.add_module(str(number), layer)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            y = layers[1](layers[0](x, index).relu(), index)
            loss = (y.float() - target).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
