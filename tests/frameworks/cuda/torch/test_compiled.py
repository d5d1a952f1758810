"""Compiled calls with device tensors move a graph to the device once."""

import gc
import weakref

import numpy as np
import pytest

from ....support.small_cases import FEW, OPERATORS, arguments
from ..host import COMPILER
from .test_calls import platform as platform  # a fixture

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]
torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import pyops.torch as pt  # noqa: E402
from pyops.torch import _cuda  # noqa: E402

PHASES = "", "_backward", "_double_backward", "_jvp"


def example(name):
    """Return a function of tensors, and the tensors."""
    graph, arrays, options = arguments(name)
    given = () if graph is None else (pt.Graph(graph.src, graph.dst, graph.num_src, graph.num_dst),)
    tensors = [torch.from_numpy(np.array(a)) for a in arrays if a is not None]
    return lambda *tensors: getattr(pt, name)(*given, *tensors, **options), tensors


def derivatives(function, tensors, order=2):
    """Return the value, its gradients, and the gradients of these."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    found = [function(*leaves)]
    for _ in range(order):
        total = sum((f * f).sum() for f in found)
        more = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        found += [m for m in more if m is not None and m.requires_grad]
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_there_is_an_implementation(name):
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert all(has(f"pyops::{name}{phase}", "CUDA") for phase in PHASES)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", OPERATORS)
def test_what_torch_expects_is_on_the_device(name, phase):
    op = OPERATORS[name]
    graph, arrays, options = arguments(name)
    place = []
    if graph is not None:
        made = pt.Graph(graph.src, graph.dst, graph.num_src, graph.num_dst)
        place = [*made._tensors, *made._sizes()[:3]]
    y = np.asarray(op(*(() if graph is None else [graph]), *arrays, **options))
    count = len(op.signature.inputs)
    inputs = [*arrays, *[None] * (count - len(arrays))]
    plain = {n: v for n, v in options.items() if n not in op.signature.indexed}
    given = op._phases["forward"]._complete(plain)
    listed = () if "softmax" in name else ("axis",)  # axes of a reduction
    given = [[v] if n in listed and isinstance(v, int) else v for n, v in given.items()]
    given += [options.get(n) for n in op.signature.indexed]
    here = [a is not None for a in inputs]
    told = {
        "": [*inputs, *given],
        "_backward": [*inputs, y, *given, here],
        "_double_backward": [*inputs, y, *inputs, *given, [*here, True]],
        "_jvp": [*inputs, *inputs, *given],
    }[phase]
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        moved = [
            torch.empty(t.shape, dtype=torch.from_numpy(t).dtype, device="cuda")
            if isinstance(t, np.ndarray)
            else t
            for t in told
        ]
        found = getattr(torch.ops.pyops, name + phase)(*place, *moved)
    found = [found] if isinstance(found, torch.Tensor) else found
    results = [a for a in arrays if a is not None]
    shapes = {"_backward": results, "_double_backward": [*results, y]}.get(phase, [y])
    assert [(f.device.type, f.shape, f.is_contiguous()) for f in found] == [
        ("cuda", np.shape(s), True) for s in shapes
    ]


@pytest.mark.parametrize("name", FEW)
def test_compiled(name, platform):
    torch._dynamo.reset()
    function, tensors = example(name)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for one, other in zip(
            derivatives(compiled, tensors, 1), derivatives(function, tensors, 1), strict=True
        ):
            torch.testing.assert_close(one, other)
    assert platform.streams


def test_a_graph_is_moved_once(platform):
    graph, x = pt.Graph([0, 1, 1], [0, 0, 1]), torch.rand(2, 4)
    compiled = torch.compile(lambda x: pt.aggregate(graph, x), fullgraph=True, backend="aot_eager")
    y = compiled(x)
    copies = platform.copies
    assert copies
    assert torch.equal(compiled(x), y)
    assert torch.equal(pt.aggregate(graph, x), y)
    assert platform.copies == copies
    copy, other = (_cuda.device_graph(graph, number) for number in range(2))
    assert other.device == 1
    assert copy is _cuda.device_graph(graph, 0) is not other
    assert copy.to_host()._packed is graph._packed


def test_what_is_on_the_device_goes_with_the_graph():
    graph = pt.Graph([0, 1, 1], [0, 0, 1])
    pt.aggregate(graph, torch.rand(2, 4))
    left = weakref.ref(_cuda.device_graph(graph, 0)._index("in_nodes"))
    gc.disable()
    try:
        del graph
        assert left() is None
    finally:
        gc.enable()


def test_graphs_on_the_device():
    """Device graphs work if torch records calls; their indices are not traceable by compilation."""
    graph, x = pt.Graph([0, 1, 1], [0, 0, 1]), torch.rand(2, 4)
    there = graph.to_device()
    y = pt.aggregate(there, x)
    assert torch.equal(
        torch.fx.experimental.proxy_tensor.make_fx(pt.aggregate)(there, x)(there, x), y
    )
    compiled = torch.compile(lambda x: pt.aggregate(there, x), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"expected pyops\.torch\.Graph where torch compiles"):
        compiled(x)
