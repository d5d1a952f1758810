"""CUDA tensors: every operator against the host, its derivatives and torch's transformations."""

import numpy as np
import pytest

from ....support.small_cases import FEW, OPERATORS

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402

from ...torch import examples as operators  # noqa: E402

WHERE = "cuda"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no device"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]


class Example(operators.Example):
    """Operator with tensors and graph on the device."""

    def __init__(self, name, dtype=torch.float64):
        super().__init__(name, dtype=dtype, device=WHERE)
        self.host = [] if self.graph is None else [self.graph]
        self.graph = self.graph and self.graph.to_device()

    def on_host(self):
        arrays = [t.cpu().numpy() for t in self.tensors]
        return torch.from_numpy(np.array(self.op(*self.host, *arrays, **self.options)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_values(name, dtype):
    example = Example(name, dtype)
    close = {"rtol": 1e-10, "atol": 1e-11} if dtype == torch.float64 else {}
    y = example(*example.tensors)
    assert y.device.type == WHERE
    torch.testing.assert_close(y.cpu(), example.on_host(), **close)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.half])
def test_half_precision(name, kind):
    """The results are those of float32 on the host from the same numbers, rounded."""
    example = Example(name, torch.float32)
    narrow = [t.to(kind) for t in example.tensors]
    y = example(*narrow)
    assert y.dtype == kind
    example.tensors = [t.float() for t in narrow]
    torch.testing.assert_close(y.float().cpu(), example.on_host(), rtol=2**-7, atol=2**-9)


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives(name):
    operators.assert_derivatives(Example(name))


@pytest.mark.parametrize("name", FEW)
def test_vmap(name):
    operators.assert_maps(Example(name))


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
    """Runs under the part of torch.compile that needs no C compiler."""
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    example = Example(name)
    (example.graph,) = example.host or [None]
    compiled = torch.compile(example.energy, fullgraph=True, backend="aot_eager")
    leaves, others = example.leaves(), example.leaves()
    one, other = compiled(*leaves), example.energy(*others)
    torch.testing.assert_close(one, other)
    for a, b in zip(
        torch.autograd.grad(one, leaves), torch.autograd.grad(other, others), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["gno_conv", "gat", "dimenet_aggregate", "tanh"])
def test_captured_into_a_graph(name):
    """A replayed step has the results of a call on the new values of its inputs."""
    example = Example(name)
    leaves = example.leaves()

    def step():
        return torch.autograd.grad(example.energy(*leaves), leaves)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    with torch.no_grad():
        for leaf in leaves:
            leaf.mul_(0.9)
    graph.replay()
    torch.testing.assert_close(got, step())


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
    """The functions of pyops accept tensors by DLPack."""
    import cupy

    import pyops

    x = torch.linspace(-1, 1, 100, device=WHERE)
    y = pyops.exp(x)
    assert isinstance(y, cupy.ndarray)
    torch.testing.assert_close(torch.from_dlpack(y), x.exp())
