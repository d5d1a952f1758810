"""Derivatives in other modes of torch: checkpoints, batches, compiled transformations.

The tests share functions of the operators and their derivatives, so they are one file.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
import pyops.torch.nn as layers  # noqa: E402
from pyops.torch import _library  # noqa: E402

from ...support.small_cases import OPERATORS  # noqa: E402
from .examples import Example  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SOME = ["gat", "gno_conv", "transformer_conv", "exp"]


class Subclass(torch.Tensor):
    """Tensor subclass that passes through torch's dispatcher."""


def first(name):
    """Return a function of the first tensor of a case, and the tensor."""
    case = Example(name)
    return lambda x: case.energy(x, *case.tensors[1:]), case.tensors[0]


def second(function):
    """Return the gradient of the squared gradient."""

    def found(x):
        (one,) = torch.autograd.grad(function(x), x, create_graph=True)
        return torch.autograd.grad((one**2).sum(), x, create_graph=True)[0]

    return found


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("kind", [torch.Tensor, Subclass])
def test_checkpoints(name, kind):
    """Saved tensors are unpacked only once."""
    from torch.utils.checkpoint import checkpoint

    function, x = first(name)
    one, other = (x.clone().as_subclass(kind).requires_grad_() for _ in range(2))
    checkpoint(function, one, use_reentrant=False).backward()
    function(other).backward()
    assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("name", SOME)
def test_batched_gradients(name):
    function, x = first(name)
    x = x.clone().requires_grad_()
    close = {"atol": 1e-5, "rtol": 1e-4, "check_batched_grad": True}
    assert torch.autograd.gradcheck(
        function, x, check_forward_ad=True, check_batched_forward_grad=True, **close
    )
    assert torch.autograd.gradgradcheck(function, x, **close)


@pytest.mark.parametrize("name", ["gat", "transformer_conv"])
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorized_jacobian(strategy, name):
    case = Example(name)
    function, x = lambda x: case(x, *case.tensors[1:]), case.tensors[0]
    jacobian = torch.autograd.functional.jacobian
    found = jacobian(function, x, vectorize=True, strategy=strategy)
    torch.testing.assert_close(found, jacobian(function, x))


@pytest.fixture
def in_python(monkeypatch):
    """Calls of small graphs, which kernels in C++ take if they were built, are made in Python."""
    monkeypatch.setattr(_library, "FEW_ENTRIES", -1)


def kept(y):
    """Return the saved intermediates of a forward pass."""
    return y.grad_fn.call.saved


@pytest.mark.usefixtures("in_python")
def test_derivatives_take_what_forward_kept():
    case = Example("gat")
    leaves = case.leaves()
    y = case(*leaves)
    expected = case.op.forward(case.graph, *(t.numpy() for t in case.tensors), **case.options)[1]
    assert len(expected) == 1
    assert np.array_equal(*kept(y), *expected)
    found = torch.autograd.grad(y.sum(), leaves, create_graph=True)
    kept(y)[0][...] += 0.5
    (other,) = torch.autograd.grad(case(*leaves).sum(), leaves[:1])
    assert torch.equal(other, found[0])
    (again,) = torch.autograd.grad(found[0].square().sum(), leaves[:1])
    expected = torch.autograd.grad(second_energy(case, leaves), leaves[:1])
    assert not torch.equal(again, expected[0])


@pytest.mark.usefixtures("in_python")
def test_what_forward_kept_goes_with_saved_tensors():
    case = Example("gat")
    leaves = case.leaves()
    y = case(*leaves)
    expected = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
    assert kept(y)
    y.sum().backward()
    assert not kept(y)
    assert all(torch.equal(leaf.grad, e) for leaf, e in zip(leaves, expected, strict=True))


@pytest.mark.usefixtures("in_python")
def test_what_is_packed_is_not_kept():
    """Hooks on saved tensors may round inputs, which then do not match saved intermediates."""
    case = Example("gat")
    leaves = case.leaves()
    rounded = [t.half().to(t.dtype).requires_grad_() for t in leaves]
    expected = torch.autograd.grad(case(*rounded).sum(), rounded)
    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(lambda t: t.half(), lambda t: t.to(leaves[0].dtype)):
        y = case(*leaves)
        assert not kept(y)
        found = torch.autograd.grad(y.sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def second_energy(case, leaves):
    (found,) = torch.autograd.grad(case(*leaves).sum(), leaves[:1], create_graph=True)
    return found.square().sum()


def test_values_of_a_batch_keep_nothing():
    """Elements of a batch share a call, so no intermediates are saved."""
    function, x = first("gat")
    batch = torch.stack([x, x.cos(), x.sin()]).requires_grad_()
    torch._vmap_internals._vmap(function)(batch).sum().backward()
    each = torch.stack([torch.func.grad(function)(one) for one in batch.detach()])
    torch.testing.assert_close(batch.grad, each)


def test_without_derivatives_nothing_is_kept(monkeypatch):
    """No intermediates are saved without derivatives, nor in forward mode."""
    from torch.autograd import forward_ad

    case = Example("gat")
    monkeypatch.setattr(case.op, "forward", None)
    case(*case.tensors)
    with torch.no_grad():
        case(*case.leaves())
    with forward_ad.dual_level():
        case(*(forward_ad.make_dual(t, t.cos()) for t in case.leaves()))
    torch.func.vmap(lambda x: case(x, *case.tensors[1:]))(case.tensors[0][None])


@pytest.mark.parametrize("name", SOME)
def test_programs_that_are_recorded(name):
    """Recorded programs contain no values of the recorded call."""
    from torch.fx.experimental.proxy_tensor import make_fx

    function, x = first(name)
    other = x.cos()
    _, moved = torch.func.linearize(function, x)
    torch.testing.assert_close(moved(other), torch.func.jvp(function, (x,), (other,))[1])
    for run in function, torch.func.grad(function), torch.func.hessian(function):
        torch.testing.assert_close(make_fx(run)(x)(other), run(other))


def test_layers_that_are_recorded():
    """Recorded layers run on other edges than those of the recorded call."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    x, layer = torch.randn(6, 8), layers.GATConv(8, 4, heads=2)
    edges, others = torch.randint(0, 6, (2, 20)), torch.randint(0, 6, (2, 20))
    with torch.no_grad():
        recorded = make_fx(lambda x, edges: layer(x, edges))(x, edges)
        torch.testing.assert_close(recorded(x, others), layer(x, others))
    layer(x, edges).sum().backward()
    expected = layer.lin.weight.grad.clone()
    layer.zero_grad()
    with FlopCounterMode(display=False):
        layer(x, edges).sum().backward()
    torch.testing.assert_close(layer.lin.weight.grad, expected)


def test_empty_batches():
    batch = torch.zeros(0, 3)
    gradient = torch.func.grad(lambda x: pt.exp(x).sum())
    for function in pt.exp, gradient:
        assert torch.func.vmap(function)(batch).shape == (0, 3)


def along(function):
    return lambda x: torch.func.jvp(function, (x,), (x.cos(),))[1]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(
    "transform",
    [along, torch.func.jacfwd, torch.func.grad, torch.func.jacrev, torch.func.hessian],
    ids=["jvp", "jacfwd", "grad", "jacrev", "hessian"],
)
def test_compiled_transformations(name, transform):
    torch._dynamo.reset()
    function, x = first(name)
    expected = transform(function)(x)
    assert expected.abs().max() > 0
    compiled = torch.compile(lambda x: transform(function)(x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)


def test_compiled_vmap():
    torch._dynamo.reset()
    function, x = first("transformer_conv")
    batch = torch.stack([x, x.cos()])
    mapped = torch.func.vmap(function)
    compiled = torch.compile(lambda x: mapped(x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(batch), mapped(batch))


@pytest.mark.parametrize("name", SOME)
def test_tangents_of_subclasses(name):
    from torch.autograd import forward_ad

    function, x = first(name)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.as_subclass(Subclass), x.cos().as_subclass(Subclass))
        found = forward_ad.unpack_dual(function(dual)).tangent
    torch.testing.assert_close(found.as_subclass(torch.Tensor), along(function)(x))


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_of_zeros_without_memory(name):
    """Zero tensors without memory, which torch passes as zero derivatives, are accepted."""
    example = Example(name)
    for place, tensor in enumerate(example.tensors):
        empty = torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)
        found, expected = [*example.tensors], [*example.tensors]
        found[place], expected[place] = empty, torch.zeros_like(tensor)
        results = []
        for given in found, expected:
            try:
                results.append(example(*given))
            except ValueError as error:  # as of coincident coordinates
                results.append(str(error))
        if isinstance(results[1], str):
            assert results[0] == results[1]
        else:
            torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives_of_quotients(name):
    """Derivatives of quotients by a constant, whose derivative is a zero tensor to torch."""
    case = Example(name)
    x, *others = case.tensors
    size = x.abs().sum()

    def slope(z, by):
        return torch.func.jvp(lambda q: case(q, *others) / by, (z,), (x,))[1].square().sum()

    found, expected = (torch.func.grad(slope)(x, by) for by in (size, float(size)))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["eager", "compiled", "subclass"])
def test_third_derivatives_are_refused(form):
    """Third derivatives are refused only if they are requested."""
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    function, x = first("transformer_conv")
    run = second(function)
    expected = run(x.clone().requires_grad_()).detach()
    x = x.clone().as_subclass(Subclass if form == "subclass" else torch.Tensor).requires_grad_()
    if form == "compiled":
        run = torch.compile(run, fullgraph=True, backend="aot_eager")
    found = run(x)
    torch.testing.assert_close(found.detach().as_subclass(torch.Tensor), expected)
    with pytest.raises(NotImplementedError, match="transformer_conv: third derivatives"):
        found.sum().backward()


@pytest.fixture
def molecule():
    """Return the energies of two molecules as a function of positions, and the positions."""
    torch.manual_seed(0)
    model = layers.DimeNetPlusPlus(
        8, 2, 1, 4, 4, 8, 3, 3, output_initializer="glorot_orthogonal"
    ).double()
    z, batch = torch.randint(1, 9, (6,)), torch.tensor([0, 0, 0, 1, 1, 1])
    return lambda pos, batch=batch: model(z, pos, batch), torch.rand(6, 3).double() * 3


def test_transformations_by_positions(molecule):
    energy, pos = molecule
    back = torch.func.jacrev(energy)(pos)
    assert back.shape == (2, 2, 6, 3)
    torch.testing.assert_close(torch.func.jacfwd(energy)(pos), back)
    total = lambda pos: energy(pos).sum()  # noqa: E731
    torch.testing.assert_close(
        torch.func.hessian(total)(pos), torch.autograd.functional.hessian(total, pos)
    )


@pytest.mark.parametrize("mapped", ["pos", "batch"])
def test_vmap_over_positions_is_refused(molecule, mapped):
    energy, pos = molecule
    batch = torch.zeros(6, dtype=torch.int64)
    dims = (0, None) if mapped == "pos" else (None, 0)
    given = [torch.stack([t, t]) if d == 0 else t for t, d in zip((pos, batch), dims, strict=True)]
    with pytest.raises(NotImplementedError, match="vmap over positions or batch"):
        torch.func.vmap(energy, dims)(*given)
