"""Tensors of a CUDA device: every operator beside its host, its derivatives and torch's ways."""

import numpy as np
import pytest

from ..doors import FEW, OPERATORS, arguments

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402

WHERE = "cuda"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no device"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]


class Example:
    """A small case of an operator, whose tensors and graph are on the device."""

    def __init__(self, name, dtype=torch.float64):
        self.op, self.door = OPERATORS[name], getattr(pt, name)
        graph, arrays, self.options = arguments(name)
        self.graph = [] if graph is None else [graph]
        self.there = [graph.to_device() for graph in self.graph]
        given = [a for a in arrays if a is not None]
        self.tensors = [torch.tensor(a, device=WHERE, dtype=dtype) for a in given]

    def __call__(self, *tensors):
        return self.door(*self.there, *tensors, **self.options)

    def on_host(self):
        arrays = [t.cpu().numpy() for t in self.tensors]
        return torch.from_numpy(np.array(self.op(*self.graph, *arrays, **self.options)))

    def energy(self, *tensors):
        y = self(*tensors)
        turns = torch.arange(y.numel(), dtype=y.dtype, device=WHERE).cos().reshape(y.shape)
        return (y * turns + y * y).sum()

    def leaves(self):
        return [t.clone().requires_grad_() for t in self.tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_values(name, dtype):
    example = Example(name, dtype)
    close = {"rtol": 1e-10, "atol": 1e-11} if dtype == torch.float64 else {}
    y = example(*example.tensors)
    assert y.device.type == WHERE
    torch.testing.assert_close(y.cpu(), example.on_host(), **close)


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives(name):
    """Of first and second order, in both modes."""
    example = Example(name)
    leaves = example.leaves()
    close = {"atol": 1e-5, "rtol": 1e-4, "fast_mode": True}
    assert torch.autograd.gradcheck(example, leaves, check_forward_ad=True, **close)
    assert torch.autograd.gradgradcheck(example, leaves, **close)


@pytest.mark.parametrize("name", FEW)
def test_vmap(name):
    example = Example(name)
    batch = [torch.stack([t, 0.5 * t, 0.9 * t]) for t in example.tensors]
    mapped = torch.func.vmap(example)(*batch)
    for number in range(3):
        torch.testing.assert_close(mapped[number], example(*(b[number] for b in batch)))


@pytest.mark.parametrize("name", FEW)
def test_modes_agree(name):
    example = Example(name)
    primals = tuple(example.tensors)
    forward = torch.func.jacfwd(torch.func.grad(example.energy))(*primals)
    reverse = torch.func.jacrev(torch.func.grad(example.energy))(*primals)
    torch.testing.assert_close(forward, reverse)
    _, dy = torch.func.jvp(example.energy, primals, tuple(t.cos() for t in primals))
    gradients = torch.func.grad(example.energy, tuple(range(len(primals))))(*primals)
    along = sum((g * t.cos()).sum() for g, t in zip(gradients, primals, strict=True))
    torch.testing.assert_close(dy, along)


@pytest.mark.parametrize("name", ["gno_conv", "gat", "tanh"])
def test_compiled(name):
    """By the part of torch.compile that needs no compiler of C."""
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    example = Example(name)
    example.there = [pt.Graph(g.src, g.dst, g.num_src, g.num_dst) for g in example.graph]
    compiled = torch.compile(example.energy, fullgraph=True, backend="aot_eager")
    leaves, others = example.leaves(), example.leaves()
    one, other = compiled(*leaves), example.energy(*others)
    torch.testing.assert_close(one, other)
    for a, b in zip(
        torch.autograd.grad(one, leaves), torch.autograd.grad(other, others), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_the_current_stream_is_used():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 26, device=WHERE)
        for _ in range(20):
            x += 1
        y = pt.negative(x)
        y += 20
    stream.synchronize()
    assert not y.any()


def test_arrays_of_the_host_are_refused():
    example = Example("gno_conv")
    one, *others = example.tensors
    with pytest.raises(TypeError, match="expected an array on the device"):
        example(one, others[0].cpu(), *others[1:])


def test_tensors_among_arrays():
    """The functions of pyops take tensors by DLPack."""
    import cupy

    import pyops

    x = torch.linspace(-1, 1, 100, device=WHERE)
    y = pyops.exp(x)
    assert isinstance(y, cupy.ndarray)
    torch.testing.assert_close(torch.from_dlpack(y), x.exp())
