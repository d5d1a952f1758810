"""Operators with an option of row indices, traced by torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyops._call.operator import OPERATORS  # noqa: E402

from .examples import Example  # noqa: E402
from .test_operators import force_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

NAMES = [name for name, op in OPERATORS.items() if op.signature.indexed]


def example(name, form):
    """Return a case whose row indices are an array, a list or a tensor."""
    found = Example(name)
    (option,) = found.op.signature.indexed
    rows = found.options[option]
    forms = {"array": rows, "list": rows.tolist(), "tensor": torch.from_numpy(rows)}
    found.options[option] = forms[form]
    return found


def test_some_have_one():
    assert {"dimenet_aggregate", "edge_to_edge"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["array", "list", "tensor"])
def test_forms(name, form):
    one, other = example(name, form), Example(name)
    assert torch.equal(one(*one.tensors), other(*other.tensors))
    compiled = torch.compile(one, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*one.tensors), other(*other.tensors))


@pytest.mark.parametrize("name", NAMES)
def test_compiled_derivatives(name):
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    case = example(name, "tensor")
    for function in case.energy, force_loss(case):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        leaves, others = case.leaves(), case.leaves()
        torch.testing.assert_close(compiled(*leaves), function(*others))
        gradients = torch.autograd.grad(compiled(*leaves), leaves)
        expected = torch.autograd.grad(function(*others), others)
        assert any(g.any() for g in expected)
        for got, wanted in zip(gradients, expected, strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_rows_may_be_an_argument(name):
    """Row indices may be an argument of one compiled function."""
    torch._dynamo.reset()
    case = example(name, "tensor")
    (option,) = case.op.signature.indexed
    rows = case.options.pop(option)
    run = lambda rows: case.function(case.graph, *case.tensors, **case.options, **{option: rows})  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for some in rows, torch.full_like(rows, -1):
        assert torch.equal(compiled(some), run(some))
    assert not torch.equal(run(rows), run(torch.full_like(rows, -1)))


@pytest.mark.parametrize("name", NAMES)
def test_exported(name):
    case = example(name, "tensor")

    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return case(*tensors)

    program = torch.export.export(Model(), tuple(case.tensors)).module()
    assert torch.equal(program(*case.tensors), case(*case.tensors))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["forward", "backward", "double_backward", "jvp"])
def test_opcheck(name, phase):
    case = example(name, "tensor")
    (option,) = case.op.signature.indexed
    tensors, gy = case.tensors, torch.ones_like(case(*case.tensors))
    plain = {n: value for n, value in case.options.items() if n != option}
    options = [*case.op._phases["forward"]._complete(plain).values(), case.options[option]]
    here = [True] * len(tensors)
    arguments = {
        "forward": [*tensors, *options],
        "backward": [*tensors, gy, *options, here],
        "double_backward": [*tensors, gy, *tensors, *options, [*here, True]],
        "jvp": [*tensors, *tensors, *options],
    }[phase]
    if phase in ("forward", "backward"):
        arguments = [
            a.clone().requires_grad_()
            if isinstance(a, torch.Tensor) and a.is_floating_point()
            else a
            for a in arguments
        ]
    graph = [*case.graph._tensors, *case.graph._sizes()[:3]]
    called = name if phase == "forward" else f"{name}_{phase}"
    torch.library.opcheck(getattr(torch.ops.pyops, called), (*graph, *arguments))


@pytest.mark.parametrize("name", NAMES)
def test_missing_rows_are_refused(name):
    torch._dynamo.reset()
    case = example(name, "tensor")
    (option,) = case.op.signature.indexed
    case.options.pop(option)
    with pytest.raises(TypeError, match=f"{option}: expected row numbers with"):
        case(*case.tensors)
    case.options[option] = np.zeros(len(case.graph.src))
    with pytest.raises(TypeError, match=f"{option}: expected int32 or int64, got float64"):
        case(*case.tensors)
