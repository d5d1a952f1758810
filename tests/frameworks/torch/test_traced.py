"""`torch.jit.trace` records calls of operators and layers, not their results."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402
from pyops.torch import nn  # noqa: E402

from ...support.cases import COMPOUNDS, representative  # noqa: E402
from ...support.small_cases import OPERATORS  # noqa: E402
from .examples import Example  # noqa: E402
from .layer_cases import CASES, LARGER, SMALLER, Call, case, edges, nodes  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*the trace")
MODES = {
    "gradients": contextlib.nullcontext,
    "constants": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


def trace(function, given):
    """Trace a function; torch does not trace callable objects."""
    return torch.jit.trace(lambda *tensors: function(*tensors), tuple(given))


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flat(part)]


def assert_same(one, other):
    torch.testing.assert_close(flat(one), flat(other), rtol=1e-12, atol=1e-12)


def slopes(function, given):
    """Return gradients of the sum of squares of the results."""
    leaves = [t.clone().requires_grad_() if t.is_floating_point() else t for t in given]
    total = sum(y.square().sum() for y in flat(function(*leaves)) if y.is_floating_point())
    found = torch.autograd.grad(
        total, [t for t in leaves if t.is_floating_point()], allow_unused=True
    )
    return [gradient for gradient in found if gradient is not None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, mode):
    example = Example(name)
    given = example.leaves() if mode == "gradients" else example.tensors
    with MODES[mode]():
        traced = trace(example, given)
    others = [0.7 * t + 0.01 for t in example.tensors]
    assert_same(traced(*others), example(*others))
    if mode == "gradients":
        assert_same(slopes(traced, others), slopes(example, others))


@pytest.mark.parametrize("before", [False, True], ids=["after autograd", "before autograd"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_by_fx(name, before):
    example = Example(name)
    traced = make_fx(lambda *given: example(*given), pre_dispatch=before)(*example.tensors)
    others = [0.7 * t + 0.01 for t in example.tensors]
    assert_same(traced(*others), example(*others))


@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.attention])
def test_attention(name):
    example = Example(name)
    traced = trace(lambda *given: example(*given, return_attention=True), example.tensors)
    others = [0.7 * t for t in example.tensors]
    assert_same(traced(*others), example(*others, return_attention=True))


@pytest.mark.parametrize("name", COMPOUNDS)
def test_compounds(name):
    problem = representative(name).problem()
    given = [torch.tensor(a) for a in problem.inputs]

    def call(*tensors):
        return getattr(pt, name)(*tensors, **problem.options)

    others = [0.7 * t for t in given]
    assert_same(trace(call, given)(*others), call(*others))


def test_options_that_are_sizes():
    """A size of a tensor is a tensor under tracing, and so are values computed from it."""
    graph = pt.Graph([0, 1, 2], [1, 2, 0])

    def conv(x, coords, weight):
        params = torch.cat([weight.flatten(), weight.new_zeros((weight.shape[0] + 1) * 4)])
        return pt.gno_conv(graph, x, coords, params, hidden=weight.shape[0])

    given, others = (
        [torch.rand(shape, dtype=torch.float64) for shape in ((3, 2), (3, 1), (hidden, 2))]
        for hidden in (5, 3)
    )
    assert_same(trace(conv, given)(*others), conv(*others))


def test_every_layer_is_in_the_table():
    public = {name for name in vars(nn) if not name.startswith("_") and name.islower() is False}
    public = public - {"InParts", "Replicated"} | {
        "softmax",
        "scatter",
        "segment",
    }  # it wraps layers
    assert {name.split()[0] for name in CASES} == public


@pytest.mark.parametrize("mode", ["gradients", "no_grad"])
@pytest.mark.parametrize("name", CASES)
def test_layers(name, mode):
    """Traced layers run on inputs and sizes other than those of the example."""
    layer, *sizes = case(name)
    layer.requires_grad_(mode == "gradients")
    with MODES[mode]():
        traced = torch.jit.trace(layer, sizes[0])
    with torch.no_grad():
        for given in sizes:
            assert_same(traced(*given), layer(*given))
    if mode == "gradients" and any(p.requires_grad for p in layer.parameters()):
        for one in layer, traced:
            for given in sizes:
                sum(y.square().sum() for y in flat(one(*given)) if y.requires_grad).backward()
        for parameter in layer.parameters():  # shared with the traced layer
            assert parameter.grad is not None


@pytest.mark.parametrize("kind", [pyops.Graph, pt.Graph])
def test_packed_graphs(kind):
    """Packed graphs are constants of the trace."""
    layer, index = nn.GATv2Conv(4, 3, add_self_loops=False).double(), edges((7, 7, 30))
    graph = kind(index[0].numpy(), index[1].numpy(), 7, 7)
    traced = torch.jit.trace(Call(layer, lambda layer, x: layer(x, graph)), nodes(LARGER))
    x = nodes(LARGER) / 2
    assert_same(traced(x), layer(x, graph))
    with pytest.raises(RuntimeError, match="expected shape"):
        traced(nodes(SMALLER))


def test_graphs_of_what_is_traced():
    def gathered(x, index):
        return pt.edge_update(pt.Graph(index[0], index[1], 7), x)

    with pytest.raises(TypeError, match=r"Graph: torch\.jit\.trace would record .* constants"):
        trace(gathered, [nodes(LARGER), edges(LARGER)])


@pytest.mark.parametrize("name", ["gat", "tanh", "sum"])
def test_derivatives_inside(name):
    example = Example(name)

    def grad(*given):
        return torch.autograd.grad(example.energy(*given), given)

    message = rf"pyops\.torch\.{name}: derivatives inside what torch\.jit\.trace records"
    with pytest.raises((NotImplementedError, RuntimeError), match=message):
        trace(grad, example.leaves())
    with pytest.raises(NotImplementedError, match=message):
        trace(torch.func.grad(example.energy), example.tensors)


@pytest.mark.parametrize("fill_value", ["mean", 0.5])
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_weights_with_self_loops(kind, fill_value):
    """The layer returns edges and weights, whatever the number of existing self loops."""
    layer = getattr(nn, kind)(4, 3, heads=2, edge_dim=3, fill_value=fill_value).double()
    call = Call(layer, lambda layer, x, e, f: layer(x, e, f, return_attention_weights=True))
    given = [
        (nodes(sizes), index, torch.rand(index.shape[1], 3, dtype=torch.float64))
        for sizes in (SMALLER, LARGER, (3, 3, 0))
        for index in [edges(sizes)]
    ]
    traced = torch.jit.trace(call, given[0])
    assert any((index[0] == index[1]).any() for _, index, _ in given)
    for some in given:
        assert_same(traced(*some), call(*some))
