"""Device tensors through pyops.torch: they use the device front end and torch's current stream."""

import numpy as np
import pytest

from ....support.cases import representative
from ..host import COMPILER
from ..platform import Platform, to_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
torch = pytest.importorskip("torch")

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402
from pyops.cuda import _device, _dispatch  # noqa: E402
from pyops.torch import _cuda, _host  # noqa: E402


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    """Host tensors that claim not to be on the CPU."""
    made = Platform()
    monkeypatch.setattr(_device, "found", lambda: made)
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False))
    monkeypatch.setattr(_cuda, "stream_of", lambda device: 1234)
    monkeypatch.setattr(_cuda, "_array", lambda tensor: to_device(tensor.numpy()))
    return made


ATTENTION = {"attend", "neighbours", "scores"}


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("gno_conv", {"gno", "row_sums"}),
        ("kernel_conv", {"matrices"}),
        ("gat_v2", ATTENTION | {"ends"}),
        ("transformer_conv", ATTENTION),
    ],
)
def test_values_and_derivatives(name, sources, platform):
    problem = representative(name).problem()
    graph = problem.graph.to_device()
    inputs = [torch.tensor(a, requires_grad=True) for a in problem.inputs]
    y = getattr(pt, name)(graph, *inputs, **problem.options)
    gy = torch.tensor(problem.arrays["gy"], requires_grad=True)
    first = torch.autograd.grad(y, inputs, gy, create_graph=True)
    h = [torch.tensor(a) for a in problem.cotangents]
    second = torch.autograd.grad(first, [*inputs, gy], h)
    for phase, got in ("forward", [y]), ("backward", first), ("double_backward", second):
        for a, b in zip(got, problem.run(phase), strict=True):
            np.testing.assert_allclose(a.detach(), b, 1e-9, 1e-11)
    assert platform.streams == [1234] * 3
    assert {source for source, *_ in platform.runtime.launched} == sources


def test_graphs_of_the_host_are_moved():
    graph, x = pyops.Graph([0, 1], [1, 1]), torch.rand(2, 3)
    assert torch.equal(pt.aggregate(graph, x), pt.aggregate(graph.to_device(), x))


def test_forward_mode():
    problem = representative("elem_scale").problem()
    inputs, tangents = (
        tuple(map(torch.tensor, some)) for some in (problem.inputs, problem.cotangents)
    )
    _, dy = torch.func.jvp(lambda *x: pt.elem_scale(*x), inputs, tangents)
    np.testing.assert_allclose(dy, problem.run("jvp")[0], 1e-12)


def test_memory_is_not_a_gradient():
    """A tensor with a graph, or with a pending negation, is read correctly."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert not _host.in_memory(x).requires_grad
    turned = torch.tensor([1 + 2j]).conj().imag
    assert torch.equal(_host.in_memory(turned), torch.tensor([-2.0]))


def test_refusals(monkeypatch):
    x = torch.zeros(3)
    with pytest.raises(TypeError, match=r"pyops\.torch\.tanh: x: expected float32 or float64"):
        pt.tanh(x.int())
    with monkeypatch.context() as without:
        _dispatch.find_kernel.cache_clear()
        without.setattr(_dispatch, "supported", list)
        with pytest.raises(NotImplementedError, match="tanh: no kernel for arrays on a device"):
            pt.tanh(x)
    graph = pyops.Graph([0], [0]).to_device(1)
    with pytest.raises(ValueError, match=r"gno_aggregate: features: expected device 1 like graph"):
        pt.gno_aggregate(graph, torch.zeros(1, 1), torch.zeros(1, 1))
    monkeypatch.setattr(
        _cuda, "_array", lambda t: t.numpy() if len(t) == 1 else to_device(t.numpy())
    )
    with pytest.raises(TypeError, match=r"add: x2: expected an array on the device like the other"):
        pt.add(x, torch.zeros(1))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(name):
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]], requires_grad=True)
    gx = torch.autograd.grad(getattr(pt, name)(x, axis=1).sum(), x)[0]
    expected = getattr(pyops, name).backward(x.detach().numpy(), np.ones(2, "f"), axis=1)[0]
    assert np.array_equal(gx, expected)
