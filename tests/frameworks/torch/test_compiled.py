"""NumPy functions and plain graphs in functions compiled by torch: they run between its graphs."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402
from pyops import blocks, partials  # noqa: E402
from pyops.torch import nn  # noqa: E402

from ...support.cases import COMPOUNDS, EVERY, representative  # noqa: E402
from ...support.small_cases import FEW, OPERATORS, arguments  # noqa: E402
from .examples import Example  # noqa: E402

GRAPH = pyops.Graph([0, 1, 2, 2], [1, 2, 0, 1])
SRC, DST = np.array([0, 1, 2]), np.array([1, 0, 0])
POSITIONS = np.random.default_rng(0).random((9, 3))


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="eager")


def assert_same(one, other):
    """Assert equal arrays, in any container."""
    if isinstance(one, pyops.Graph):
        one, other = ((g.src, g.dst, g.edge_ids, g.num_src, g.num_dst) for g in (one, other))
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for found, expected in zip(one, other, strict=True):
            assert_same(found, expected)
    else:
        np.testing.assert_array_equal(one, other)


def assert_called(function):
    """Assert the results of the uncompiled function, with calls between compiled graphs."""

    def whole(x):
        x = x * 2
        found = function(x.numpy())
        return x + 1, found

    x = torch.rand(3, 4, dtype=torch.float64)
    y, found = compiled(whole)(x)
    assert torch.equal(y, x * 2 + 1)
    assert_same(found, whole(x)[1])


@pytest.mark.parametrize("name", FEW)
def test_operators(name):
    graph, arrays, options = arguments(name)
    given = arrays if graph is None else [graph, *arrays]
    assert_called(lambda x: OPERATORS[name](*given, **options))


@pytest.mark.parametrize("phase", ["forward", "backward", "double_backward", "jvp"])
@pytest.mark.parametrize("name", ["aggregate", *COMPOUNDS])
def test_phases(name, phase):
    problem = representative(name).problem()
    assert_called(lambda x: problem.run(phase))


@pytest.mark.parametrize("name", EVERY)
def test_every_phase_is_called(name):
    for phase in "__call__", *EVERY[name].phases:
        assert getattr(EVERY[name], phase)._torchdynamo_disable


def packed(x):
    network = x[:2, :3], x[0, :2], x[:, :2], x[0, :3]
    block = blocks.pack_gno(*network)
    heads = blocks.pack_gat(x, x)
    parts = blocks.unpack_gno(block, dim=3, hidden=2)
    return block, heads, tuple(parts), blocks.pack_basis(x), blocks.pack_dimenet(x, x)


CALLS = {
    "Graph": {
        "arrays": lambda x: pyops.Graph(SRC, DST, 3),
        "lists": lambda x: pyops.Graph([0, 1], [1, 0]),
        "from_csc": lambda x: pyops.Graph.from_csc([0, 1, 2], SRC[:2], 3, [1, 0]),
        "reverse": lambda x: GRAPH.reverse(),
        "with_edge_ids": lambda x: GRAPH.with_edge_ids([0, 0, 1, 1]),
        "in_degrees": lambda x: GRAPH.in_degrees(),
    },
    "radius_graph": {
        "all": lambda x: tuple(pyops.radius_graph(POSITIONS, 0.5)),
        "of what torch computes": lambda x: tuple(pyops.radius_graph(x[:, :3].copy(), 2.0)),
    },
    "knn_graph": {"all": lambda x: tuple(pyops.knn_graph(POSITIONS, 2))},
    "get_num_threads": {"": lambda x: pyops.get_num_threads()},
    "set_num_threads": {"": lambda x: pyops.set_num_threads(None) is None},
}
OTHERS = {
    "blocks": packed,
    "partials": lambda x: partials.get_partial_elem_scale_x_val(x, x, x[0], np.array([4])),
    "testing": lambda x: pyops.testing.check_gradients(pyops.tanh, x) is None,
    "torch": lambda x: (pt.Graph(SRC, DST, 3), pt.Graph([0, 1], [1, 0]).reverse()),
}


def test_every_function_is_in_a_table():
    public = {n for n, v in vars(pyops).items() if callable(v) and not n.startswith("_")}
    assert public == {*OPERATORS, *COMPOUNDS, *CALLS}


@pytest.mark.parametrize("call", [c for calls in CALLS.values() for c in calls.values()])
def test_functions(call):
    assert_called(call)


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules(name):
    assert_called(OTHERS[name])


@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.has_graph])
def test_plain_graphs(name):
    """Plain graphs can be arguments of functions on tensors, with derivatives."""
    example = Example(name)
    graph, _, _ = arguments(name)
    expected = example(*example.tensors)
    example.graph = graph
    leaves = example.leaves()
    y = compiled(lambda *given: 2 * example(*given))(*leaves)
    assert torch.equal(y, 2 * expected)
    assert y.requires_grad


def test_plain_graphs_of_layers():
    layer, x = nn.GATConv(4, 3, add_self_loops=False), torch.rand(3, 4)
    graph = pyops.Graph([0, 1, 2], [1, 2, 0])
    torch.testing.assert_close(compiled(layer)(x, graph), layer(x, graph))


def test_what_may_not_be_called_says_so():
    function = torch.compile(lambda x: pt.aggregate(GRAPH, x), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"expected pyops\.torch\.Graph where torch compiles"):
        function(torch.rand(3, 4))
