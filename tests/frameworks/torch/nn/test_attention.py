"""GATConv, GATv2Conv and TransformerConv against those of PyTorch Geometric.

The layers have the same options, so their tests are parametrized in one file.
"""

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import pyops  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

from .comparison import (  # noqa: E402
    EDGES,
    NODES,
    check_alike,
    check_same,
    distances,
    draw,
    edges,
    pair,
    results,
)

NAMES = ["GATConv", "GATv2Conv", "TransformerConv"]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


SHARED = [
    {},
    {"heads": 3},
    {"heads": 3, "concat": False},
    {"heads": 2, "bias": False},
    {"heads": 2, "dropout": 0.4},
    {"heads": 2, "edge_dim": 3},
    {"heads": 2, "edge_dim": 3, "concat": False, "dropout": 0.3},
    {"heads": 2, "aggr": "mean"},
    {"heads": 2, "aggr": "max", "dropout": 0.3},
    {"heads": 2, "aggr": "min", "concat": False, "edge_dim": 3},
    {"heads": 2, "aggr": "median"},
    {"heads": 2, "aggr": "powermean", "aggr_kwargs": {"learn": True}, "concat": False},
    {"heads": 2, "flow": "target_to_source", "edge_dim": 3},
    {"heads": 2, "flow": "target_to_source", "aggr": "mean"},
]
LOOPED = [
    {"heads": 2, "negative_slope": 0.5},
    {"heads": 2, "add_self_loops": False},
    {"heads": 2, "add_self_loops": False, "edge_dim": 3},
    {"heads": 2, "residual": True},
    {"heads": 2, "residual": True, "concat": False, "bias": False},
    {"heads": 2, "edge_dim": 3, "fill_value": 0.7},
    {"heads": 2, "edge_dim": 3, "fill_value": torch.tensor([1.0, 2.0, 3.0])},
    {"heads": 2, "edge_dim": 3, "fill_value": "add"},
    {"heads": 2, "edge_dim": 3, "fill_value": "max", "flow": "target_to_source"},
    {"heads": 2, "edge_dim": 3, "fill_value": "min"},
    {"heads": 2, "edge_dim": 3, "fill_value": "mul"},
]
OWN = {
    "GATConv": LOOPED,
    "GATv2Conv": [*LOOPED, {"heads": 2, "share_weights": True}],
    "TransformerConv": [
        {"heads": 2, "beta": True},
        {"heads": 2, "beta": True, "concat": False},
        {"heads": 2, "root_weight": False, "beta": True},
    ],
}
TABLE = [(name, given) for name in NAMES for given in [*SHARED, *OWN[name]]]


def written(value):
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None


@pytest.mark.parametrize(("name", "given"), TABLE, ids=written)
def test_options(name, given):
    original, drop_in = pair(pyg, nn, name, 5, 4, **given)
    check_alike(original, drop_in)
    features = [draw(EDGES, 3)] if "edge_dim" in given else []
    check_same(original, drop_in, [draw(NODES, 5), edges(), *features])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("channels", "sizes"),
    [((5, 7), (20, 30)), ((5, 7), (30, 20)), (5, (30, 30)), (5, (20, 30))],
    ids=str,
)
def test_two_kinds_of_nodes(name, channels, sizes):
    given = {} if name == "TransformerConv" else {"residual": True}
    original, drop_in = pair(pyg, nn, name, channels, 4, heads=2, **given)
    check_alike(original, drop_in)
    widths = channels if isinstance(channels, tuple) else (channels, channels)
    x = tuple(draw(n, w) for n, w in zip(sizes, widths, strict=True))
    check_same(original, drop_in, [x, edges(*sizes)])


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_two_kinds_of_nodes_with_features_of_edges(name):
    original, drop_in = pair(pyg, nn, name, (5, 7), 4, heads=2, edge_dim=1, fill_value=0.5)
    x = draw(20, 5), draw(30, 7)
    check_same(original, drop_in, [x, edges(20, 30), draw(EDGES)])


@pytest.mark.parametrize("channels", [5, (5, 7)])
@pytest.mark.parametrize("size", [None, (30, 30), (30, 25)])
@pytest.mark.parametrize("loops", [True, False])
def test_sources_alone(channels, size, loops):
    original, drop_in = pair(pyg, nn, "GATConv", channels, 4, heads=2, add_self_loops=loops)
    index = edges(30, 25)
    check_same(original, drop_in, [(draw(30, 5), None), index, None, size])


def test_both_weights_for_one_kind_of_nodes():
    original, drop_in = pair(pyg, nn, "GATConv", (5, 5), 4, heads=2)
    check_same(original, drop_in, [draw(NODES, 5), edges()])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("nodes", "count"), [(NODES, 0), (0, 0), (1, 1)])
def test_empty(name, nodes, count):
    given = {} if name == "TransformerConv" else {"add_self_loops": False}
    original, drop_in = pair(pyg, nn, name, 5, 4, heads=2, edge_dim=3, **given)
    index = torch.zeros(2, count, dtype=torch.long)
    check_same(original, drop_in, [draw(nodes, 5), index, draw(count, 3)], single=False)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_self_loops_alone(name):
    original, drop_in = pair(pyg, nn, name, 5, 4, heads=2)
    index = torch.zeros(2, 0, dtype=torch.long)
    check_same(original, drop_in, [draw(6, 5), index], single=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [{}, {"edge_dim": 3}, {"dropout": 0.5}, {"aggr": "max"}], ids=str)
def test_weights(name, given):
    original, drop_in = pair(pyg, nn, name, 5, 4, heads=2, **given)
    features = draw(EDGES, 3) if "edge_dim" in given else None
    x, index = draw(NODES, 5), edges()
    last = () if name != "GATConv" else (None,)
    check_same(original, drop_in, [x, index, features, *last, True])
    _, (mine, _) = drop_in(
        x.float(), index, None if features is None else features.float(), *last, True
    )
    _, (theirs, _) = original(
        x.float(), index, None if features is None else features.float(), *last, True
    )
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("width", [None, 3])
def test_sparse_matrices(name, layout, loops, width):
    if loops and name == "TransformerConv":
        pytest.skip("it has none")
    given = {} if name == "TransformerConv" else {"add_self_loops": loops}
    original, drop_in = pair(pyg, nn, name, (5, 7), 4, heads=2, edge_dim=width, **given)
    matrix = adjacency(layout, width)
    arguments = [(draw(25, 5), draw(25, 7)), matrix]
    order = 2 if layout == "coo" else 1  # the original has no second derivatives of sorted edges
    check_same(original, drop_in, arguments, order)
    if width is None:  # otherwise the original's weights do not match its matrix
        last = () if name != "GATConv" else (None,)
        check_same(original, drop_in, [*arguments, None, *last, True], order)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_dropout_with_sparse_matrices(name, layout, loops, packed, monkeypatch):
    """Dropout masks are drawn in the same order of edges."""
    if packed:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)
    given = {"heads": 2, "add_self_loops": loops, "dropout": 0.5}
    original, drop_in = pair(pyg, nn, name, 5, 4, **given)
    check_same(original, drop_in, [draw(25, 5), adjacency(layout, None)], 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [None, 3])
def test_sparse_matrices_by_column(name, width):
    given = {} if name == "TransformerConv" else {"add_self_loops": False}
    layer = getattr(nn, name)((5, 7), 4, heads=2, edge_dim=width, **given)
    x = draw(25, 5), draw(25, 7)
    found, truth = (
        results(layer, [x, adjacency(layout, width)], torch.float64) for layout in ("csc", "coo")
    )
    assert distances(found, truth)[0] < 1e-13


def adjacency(layout, width):
    """Return a sparse matrix of 25 destinations and sources, with features or scalars as values."""
    torch.manual_seed(2)
    rows, columns = torch.unique(edges(25, 25), dim=1)
    values = draw(len(rows), *([width] if width else []))
    shape = (25, 25, *values.shape[1:])
    if layout == "coo":
        return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, shape).coalesce()
    major, minor = (rows, columns) if layout == "csr" else (columns, rows)
    order = major.argsort(stable=True)
    make = getattr(torch, f"sparse_{layout}_tensor")
    return make(offsets_of(major, 25), minor[order], values[order], shape)


def offsets_of(rows, count):
    return torch.nn.functional.pad(torch.bincount(rows, minlength=count).cumsum(0), (1, 0))


@pytest.mark.parametrize("name", NAMES)
def test_packed_edges(name):
    """A pair (offsets, sources) and a packed graph give the same as the index of their edges."""
    given = {} if name == "TransformerConv" else {"add_self_loops": False}
    layer = getattr(nn, name)(5, 4, heads=2, edge_dim=3, **given)
    x, features, index = draw(NODES, 5), draw(EDGES, 3), edges()
    order = index[1].argsort(stable=True)
    offsets = offsets_of(index[1], NODES)
    truth = results(layer, [x, index[:, order], features], torch.float64)
    graphs = [
        (offsets, index[0, order]),
        pyops.Graph(*index[:, order].numpy(), NODES),
        pyops.torch.Graph(*index[:, order].numpy(), NODES),
        index[:, order].int(),
    ]
    for graph in graphs:
        found = results(layer, [x, graph, features], torch.float64)
        assert distances(found, truth)[0] < 2e-14


@pytest.mark.parametrize("name", NAMES)
def test_widths_seen_at_first_use(name):
    given = {"edge_dim": -1}
    original, drop_in = pair(pyg, nn, name, (-1, -1), 4, heads=2, **given)
    assert repr(drop_in) == repr(original)
    drop_in.load_state_dict(original.state_dict())
    arguments = [(draw(NODES, 5).float(), draw(NODES, 7).float()), edges(), draw(EDGES, 3).float()]
    torch.manual_seed(7)
    original(*arguments)
    torch.manual_seed(7)
    drop_in(*arguments)
    for name_of, value in original.state_dict().items():
        assert torch.equal(drop_in.state_dict()[name_of], value)
    fresh = getattr(nn, name)((-1, -1), 4, heads=2, **given)
    fresh.load_state_dict(original.state_dict())
    check_same(original, fresh, arguments)


def test_graphs_are_packed_once_and_let_go():
    from pyops.torch.nn._edges import cache
    from pyops.torch.nn._edges.layer_edges import edges_of

    cache._entries.clear()
    index = edges()
    graph = edges_of("layer", index, NODES, NODES).graph
    assert edges_of("layer", index[:, :], NODES, NODES).graph is graph
    assert edges_of("layer", index.clone(), NODES, NODES).graph is not graph
    assert edges_of("layer", index, NODES, NODES, loops=NODES).graph.num_edges > EDGES
    index[0, 0] = 1 if index[0, 0] == 0 else 0
    changed = edges_of("layer", index, NODES, NODES).graph
    assert changed is not graph
    assert changed.src[0] == index[0, 0]
    del index
    edges_of("layer", edges(), NODES, NODES)
    assert len(cache._entries) == 1


def test_edges_made_in_inference_mode():
    layer = nn.GATConv(5, 4)
    x = draw(NODES, 5).float()
    with torch.inference_mode():
        index = edges()
        first = layer(x, index)
        index[0] = index[0].flip(0)
        second = layer(x, index)
    assert torch.equal(second, layer(x, index.clone()))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: nn.GATConv(5, 4, aggr="middle"),
            ValueError,
            r"GATConv: aggr: expected one of sum",
        ),
        (lambda: nn.GATConv(5, 4, flow="up"), ValueError, r"GATConv: flow: expected one of source"),
        (lambda: nn.GATConv(5, 4, node_dim=0), TypeError, r"node_dim: there is no such"),
        (lambda: nn.GATConv(5, 4, decomposed_layers=2), ValueError, r"decomposed_layers: expected"),
        (lambda: call(x=draw(3, 3, 5)), ValueError, r"x: expected two dimensions, got 3"),
        (lambda: call(index=edges().double()), ValueError, r"edge_index: expected int32 or int64"),
        (lambda: call(index=[[0], [1]]), TypeError, r"edge_index: expected a tensor"),
        (lambda: call(index=edges() + 20), IndexError, r"edge_index: .*expected indices from 0"),
        (lambda: call(edge_attr=draw(7, 3)), ValueError, r"edge_attr: expected 120 rows"),
        (
            lambda: nn.GATv2Conv(5, 4, flow="target_to_source").double()(
                (draw(20, 5), draw(25, 5)), edges(20, 20)
            ),
            ValueError,
            r"flow: 'target_to_source' needs as many",
        ),
        (lambda: call(size=(3, 30)), ValueError, r"size: expected 30 nodes in place 0"),
        (lambda: call(index=(torch.tensor([0, 2, 1]), torch.tensor([0, 1]))), ValueError, "never"),
        (
            lambda: nn.GATConv(5, 4).double()(draw(NODES, 5), pyops.Graph([0], [1], NODES)),
            ValueError,
            "add_self_loops=False",
        ),
        (
            lambda: nn.TransformerConv(5, 4).double()(draw(NODES, 5), edges(), draw(EDGES, 3)),
            ValueError,
            r"edge_attr: expected none where edge_dim is None",
        ),
        (
            lambda: nn.TransformerConv(5, 4, edge_dim=3).double()(draw(NODES, 5), edges()),
            ValueError,
            r"edge_attr: expected edge_dim columns, got None",
        ),
    ],
)
def test_refusals(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def call(x=None, index=None, edge_attr=None, size=None):
    layer = nn.GATConv(5, 4, edge_dim=3).double()
    x = draw(NODES, 5) if x is None else x
    return layer(x, edges() if index is None else index, edge_attr, size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled(name, backend):
    torch._dynamo.reset()
    layer = getattr(nn, name)(5, 4, heads=2, edge_dim=3)
    arguments = [draw(NODES, 5), edges(), draw(EDGES, 3)]
    truth = results(layer, arguments, torch.float64, order=1)
    compiled = torch.compile(layer.double(), fullgraph=True, backend=backend)
    for _ in range(2):
        found = results(lambda *a: compiled(*a), arguments, torch.float64, order=1, module=layer)
        assert distances(found, truth)[0] < 1e-12


def test_compiled_layers_see_changed_edges():
    torch._dynamo.reset()
    layer = nn.GATConv(5, 4).double()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, index = draw(NODES, 5), edges()
    for _ in range(3):
        torch.testing.assert_close(compiled(x, index), layer(x, index))
        index[0] = index[0].flip(0)


def test_compiled_layers_do_not_return_weights_of_self_loops():
    torch._dynamo.reset()
    layer = nn.GATConv(5, 4).double()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="return_attention_weights: not with add_self_loops"):
        compiled(draw(NODES, 5), edges(), return_attention_weights=True)


def test_changed_calls_of_the_layer_of_edge_features_are_made():
    original, drop_in = pair(pyg, nn, "GATConv", 5, 4, heads=2, edge_dim=3)
    x, index, features = draw(NODES, 5).float(), edges(), draw(EDGES, 3).float()
    plain = drop_in(x, index, features)
    for layer in original, drop_in:
        layer.lin_edge.forward = lambda z, old=layer.lin_edge.forward: 9 * old(z)
    torch.testing.assert_close(drop_in(x, index, features), original(x, index, features))
    assert not torch.allclose(drop_in(x, index, features), plain)


@pytest.mark.parametrize("name", NAMES)
def test_functional_transformations(name):
    layer = getattr(nn, name)(5, 4, heads=2).double()
    x, index = draw(NODES, 5), edges()
    along = draw(NODES, 5)
    value, moved = torch.func.jvp(lambda x: layer(x, index), (x,), (along,))
    step = 1e-6
    difference = (layer(x + step * along, index) - layer(x - step * along, index)) / (2 * step)
    torch.testing.assert_close(moved, difference, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(value, layer(x, index))


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_self_loops_of_ones(name):
    layers = pair(pyg, nn, name, 5, 4, edge_dim=3, fill_value=None)
    check_same(*layers, [draw(NODES, 5), edges(), draw(EDGES, 3)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv", "NNConv"])
def test_one_edge_with_a_number(name, packed, monkeypatch):
    if packed:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)
    made = {}
    if name == "NNConv":
        made = {"nn": torch.nn.Sequential(torch.nn.Linear(1, 20))}
    layers = pair(pyg, nn, name, 5, 4, **(made or {"edge_dim": 1}))
    check_same(*layers, [draw(NODES, 5), edges()[:, :1], draw(1)], single=False)
