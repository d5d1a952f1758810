"""`where`, `clip`, softmax and its logarithm on tensors, against torch's own."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402

from ...families.test_selections import BOUNDS, draw  # noqa: E402

CONDITION = torch.from_numpy(draw((4, 1, 3)) > 0)
CALLS = {
    "where": (lambda x, y: pt.where(CONDITION, x, y), lambda x, y: torch.where(CONDITION, x, y)),
    "integers": (
        lambda x, y: pt.where(condition=2 * CONDITION.int(), x1=x, x2=y),
        lambda x, y: torch.where(CONDITION, x, y),
    ),
    "clip": (lambda x, y: pt.clip(x, **BOUNDS) + y, lambda x, y: torch.clamp(x, **BOUNDS) + y),
    **{
        f"{name} {axis}": (
            lambda x, y, name=name, axis=axis: getattr(pt, name)(x, axis=axis) * y,
            lambda x, y, name=name, axis=axis: getattr(torch, name)(x, axis) * y,
        )
        for name in ("softmax", "log_softmax")
        for axis in (0, 1, -1)
    },
}


def arguments(dtype=torch.float64):
    shapes = (4, 5, 3), (5, 3)
    return [torch.from_numpy(draw(s, i)).to(dtype).requires_grad_() for i, s in enumerate(shapes)]


def gradients(function, dtype=torch.float64, second=True):
    """Return the inputs with gy, the value and the gradients."""
    x = arguments(dtype)
    y = function(*x)
    gy = torch.from_numpy(draw(tuple(y.shape), 2)).to(dtype).requires_grad_()
    return [*x, gy], [y, *torch.autograd.grad(y, x, gy, create_graph=second)]


def results(function):
    """Return the value, the gradients, and gradients of these along fixed directions."""
    x, (y, *first) = gradients(function)
    along = sum((a * torch.cos(torch.arange(a.numel()).view(a.shape))).sum() for a in first)
    return [y, *first, *torch.autograd.grad(along, x, materialize_grads=True)]


@pytest.mark.parametrize("name", CALLS)
def test_against_torch(name):
    for found, expected in zip(*map(results, CALLS[name]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLS)
def test_half_precision(name, dtype):
    one, other = [f(*arguments(dtype)) for f in CALLS[name]]
    assert one.dtype == other.dtype == dtype
    torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", CALLS)
def test_compiled(name):
    function = CALLS[name][0]
    torch._dynamo.reset()
    run = torch.compile(function, backend="aot_eager", fullgraph=True)
    pairs = (gradients(f, second=False)[1] for f in (run, function))
    for found, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["where", "clip", "softmax -1", "log_softmax 0"])
def test_transformations(name):
    function = CALLS[name][0]
    x = [a.detach() for a in arguments()]
    _, along = torch.func.jvp(function, tuple(x), tuple(map(torch.ones_like, x)))
    gradient = torch.func.jacrev(lambda *a: function(*a).sum(), argnums=(0, 1))(*x)
    total = sum(part.sum() for part in gradient)
    torch.testing.assert_close(along.sum(), total, rtol=1e-10, atol=1e-10)


def test_a_condition_has_no_gradient():
    x, y = arguments()
    condition = torch.ones((4, 5, 3), dtype=torch.float64, requires_grad=True)
    pt.where(condition, x, y).sum().backward()
    assert condition.grad is None
    assert np.array_equal(x.grad, np.ones((4, 5, 3)))


REFUSALS = {
    "pyops.torch.where: condition: expected a torch.Tensor, got bool": lambda x: (True, x, x),
    "pyops.torch.where: condition: expected booleans": lambda x: (x + 0j, x, x),
    "pyops.torch.where: x1: expected a torch.Tensor": lambda x: (x > 0, 1.0, x),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message):
    with pytest.raises(TypeError, match=f"^{message}"):
        pt.where(*REFUSALS[message](torch.ones(3)))
