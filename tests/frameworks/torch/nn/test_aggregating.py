"""GCNConv, SAGEConv, GraphConv, GINConv, RGCNConv and CFConv against those of PyTorch Geometric."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.nn.models import schnet  # noqa: E402

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn import rgcn_conv  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

from .comparison import (  # noqa: E402
    EDGES,
    NODES,
    check_alike,
    check_same,
    distances,
    draw,
    edges,
    results,
)

NAMES = ["GCNConv", "SAGEConv", "GraphConv", "GINConv"]
WEIGHTED = ["GCNConv", "GraphConv"]
BIPARTITE = [name for name in NAMES if name != "GCNConv"]
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*[Ss]parse (CSR|invariant)", "ignore:Converting sparse"
)


def weights(count=EDGES):
    return torch.rand(count, dtype=torch.float64) + 0.5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=[False, True], ids=["by torch", "packed"])
def _route(request, monkeypatch):
    if request.param:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)


def network(width=5):
    layers = torch.nn.Linear(width, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4)
    return torch.nn.Sequential(*layers)


def pair(name, channels=5, **options):
    """Return layers of both packages, created from the same random seed."""
    made = []
    for package in (pyg, nn):
        torch.manual_seed(1)
        arguments = (network(channels),) if name == "GINConv" else (channels, 4)
        made.append(getattr(package, name)(*arguments, **options))
    return made


SHARED = [
    {},
    {"aggr": "sum"},
    {"aggr": "mean"},
    {"aggr": "max"},
    {"aggr": "min"},
    {"aggr": "median"},
    {"aggr": "softmax", "aggr_kwargs": {"t": 0.7, "learn": True}},
    {"flow": "target_to_source"},
    {"flow": "target_to_source", "aggr": "max"},
]
SEVERAL = {"aggr": ["mean", "max", "std"]}
OWN = {
    "GCNConv": [
        {"improved": True},
        {"add_self_loops": False},
        {"normalize": False},
        {"normalize": False, "aggr": "mean"},
        {"bias": False},
        {"cached": True},
    ],
    "SAGEConv": [
        SEVERAL,
        {"aggr": ["max", "mean"], "project": True},
        {"project": True, "normalize": True},
        {"root_weight": False, "bias": False},
        {"root_weight": False, "flow": "target_to_source"},
    ],
    "GraphConv": [{"bias": False}],
    "GINConv": [{"eps": 0.3}, {"eps": 0.3, "train_eps": True}],
}
TABLE = [(name, given) for name in NAMES for given in [*SHARED, *OWN[name]]]


def written(value):
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize(("name", "given"), TABLE, ids=written)
def test_options(name, given):
    original, drop_in = pair(name, **given)
    check_alike(original, drop_in)
    check_same(original, drop_in, [draw(NODES, 5), edges()])
    if name in WEIGHTED and not given.get("cached"):
        check_same(original, drop_in, [draw(NODES, 5), edges(), weights()])
        check_same(original, drop_in, [draw(NODES, 5), edges(), weights()[:, None]], single=False)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", BIPARTITE)
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("sizes", [(20, 30), (30, 20)])
def test_two_kinds_of_nodes(name, aggr, sizes):
    widths = 5 if name == "GINConv" else (5, 7)
    original, drop_in = pair(name, widths, aggr=aggr)
    check_alike(original, drop_in)
    x = draw(sizes[0], 5), draw(sizes[1], 5 if name == "GINConv" else 7)
    more = [weights()] if name in WEIGHTED else []
    check_same(original, drop_in, [x, edges(*sizes), *more])
    check_same(original, drop_in, [(x[0], None), edges(*sizes), *(more or []), sizes])


@pytest.mark.parametrize("name", NAMES)
def test_lazy_widths(name):
    channels = {"GCNConv": -1, "GINConv": 5}.get(name, (-1, -1))
    original, drop_in = pair(name, channels)
    assert repr(drop_in) == repr(original)
    drop_in.load_state_dict(original.state_dict())
    x = draw(NODES, 5).float()
    given = x if name == "GCNConv" else (x, draw(NODES, 5).float())
    index = edges()
    for layer in original, drop_in:
        torch.manual_seed(7)
        layer(given, index)
    for key, value in original.state_dict().items():
        assert torch.equal(drop_in.state_dict()[key], value)
    check_same(original, drop_in, [given, index], single=False)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize(("nodes", "count"), [(NODES, 0), (0, 0), (1, 1)])
def test_empty(name, aggr, nodes, count):
    original, drop_in = pair(name, aggr=aggr)
    index = torch.zeros(2, count, dtype=torch.long)
    more = [weights(count)] if name in WEIGHTED else []
    check_same(original, drop_in, [draw(nodes, 5), index, *more], single=False)


def adjacency(layout, num_dst=NODES, num_src=NODES):
    """Return a sparse matrix with a diagonal, empty rows, and no equal products."""
    dense = torch.rand(num_dst, num_src, dtype=torch.float64)
    dense[dense < 0.8] = 0
    dense[3:5] = 0
    return dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("aggr", ["add", "mean", "max", "median"])
@pytest.mark.parametrize("name", NAMES)
def test_sparse_matrices(name, aggr, layout):
    """Values of a matrix are edge weights, as PyTorch Geometric takes them."""
    original, drop_in = pair(name, aggr=aggr)
    order = 1 if aggr in ("mean", "max") else 2  # the original lacks second derivatives
    matrix = adjacency(layout)
    check_same(original, drop_in, [draw(NODES, 5), matrix], order, single=False)
    if name in WEIGHTED:  # the original ignores other weights, except in messages
        count = matrix.values().shape[0]
        check_same(original, drop_in, [draw(NODES, 5), matrix, weights(count)], order, False)
    if name != "GCNConv":
        matrix = adjacency(layout, 20, 30)
        check_same(original, drop_in, [(draw(30, 5), draw(20, 5)), matrix], order, single=False)
        check_same(original, drop_in, [(draw(30, 5), None), matrix], order, single=False)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("options", [{"improved": True}, {"add_self_loops": False}], ids=str)
def test_sparse_matrices_of_a_gcn(options):
    original, drop_in = pair("GCNConv", **options)
    check_same(original, drop_in, [draw(NODES, 5), adjacency("csr")], single=False)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_by_the_values_of_a_matrix(name):
    original, drop_in = pair(name)
    drop_in.load_state_dict(original.state_dict())
    x, found = draw(NODES, 5), []
    matrix = adjacency("csr")
    for layer in (original, drop_in):
        leaf = matrix.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer.double()(x, leaf).sin().sum(), leaf)
        found.append(slope.to_dense())
    torch.testing.assert_close(*found)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("name", NAMES)
def test_duplicates_in_a_matrix_are_summed(name, aggr):
    _, layer = pair(name, aggr=aggr)
    x, values = draw(NODES, 5), weights()
    matrix = torch.sparse_coo_tensor(edges(), values, (NODES, NODES))
    layer.double()
    torch.testing.assert_close(layer(x, matrix), layer(x, matrix.coalesce()))


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_graphs_and_offsets(name, aggr):
    options = {"add_self_loops": False} if name == "GCNConv" else {}
    _, layer = pair(name, aggr=aggr, **options)
    x, index = draw(NODES, 5), edges()
    index = index[:, index[1].argsort(stable=True)]
    offsets = torch.nn.functional.pad(torch.bincount(index[1], minlength=NODES).cumsum(0), (1, 0))
    truth = results(layer, [x, index], torch.float64)
    for graph in (
        (offsets, index[0]),
        pyops.Graph(*index.numpy(), NODES),
        pyops.torch.Graph(*index.numpy(), NODES),
        index.int(),
    ):
        found = results(layer, [x, graph], torch.float64)
        assert distances(found, truth)[0] < 1e-13


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("weighted", [False, True])
def test_cached_edges(weighted):
    """The edges of the first call are kept, until the layer is initialized anew."""
    layers = pair("GCNConv", cached=True)
    layers[1].load_state_dict(layers[0].state_dict())
    x, given = draw(NODES, 5).float(), [edges(), *([weights().float()] if weighted else [])]
    first = [layer(x, *given) for layer in layers]
    others = [layer(2 * x, edges()) for layer in layers]
    for found in first, others:
        torch.testing.assert_close(*found)
    torch.testing.assert_close(others[1], 2 * first[1])
    again = pickle.loads(pickle.dumps(copy.deepcopy(layers[1])))
    torch.testing.assert_close(again(x, edges()), first[1])
    layers[1].reset_parameters()
    assert layers[1]._cached_edge_index is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
def test_compiled(name, aggr):
    torch._dynamo.reset()
    _, layer = pair(name, aggr=aggr)
    arguments = [draw(NODES, 5), edges()]
    arguments += [weights()] if name in WEIGHTED else []
    truth = results(layer, arguments, torch.float64, order=1)
    compiled = torch.compile(layer.double(), fullgraph=True, backend="aot_eager")
    found = results(lambda *a: compiled(*a), arguments, torch.float64, order=1, module=layer)
    assert distances(found, truth)[0] < 1e-12


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", NAMES)
def test_a_maximum_without_gradients(name):
    """The operator then reduces features, to the same result."""
    _, layer = pair(name, aggr="max")
    x, index = draw(NODES, 5).float(), edges()
    with torch.no_grad():
        found = layer(x, index)
    torch.testing.assert_close(found, layer(x, index))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: nn.GCNConv(5, 4, normalize=False, add_self_loops=True),
            ValueError,
            "GCNConv: add_self_loops: expected False where normalize=False",
        ),
        (
            lambda: nn.GCNConv(5, 4)((torch.zeros(3, 5),) * 2, edges(3, 3)),
            ValueError,
            "GCNConv: x: expected a tensor, got a tuple.*; use SAGEConv or GraphConv",
        ),
        (
            lambda: nn.GCNConv(5, 4)(torch.zeros(3, 5), edges(3, 3), torch.ones(5)),
            ValueError,
            r"GCNConv: edge_weight: expected 120 weights, one for each edge, got shape \(5,\)",
        ),
        (
            lambda: nn.GraphConv(5, 4)(torch.zeros(3, 5), edges(3, 3), weights()),
            TypeError,
            r"GraphConv: edge_weight: expected torch.float32 like x, got torch.float64",
        ),
        (
            lambda: nn.GraphConv(5, 4)(torch.zeros(3, 5), edges(3, 3), [1.0]),
            TypeError,
            r"GraphConv: edge_weight: expected a torch.Tensor, got list",
        ),
        (
            lambda: nn.GCNConv(5, 4)(torch.zeros(NODES, 5), pyops.Graph([0], [1], NODES)),
            ValueError,
            "add_self_loops=False",
        ),
        (
            lambda: nn.SAGEConv(-1, 4, project=True),
            ValueError,
            "SAGEConv: project: expected False where in_channels is -1",
        ),
        (
            lambda: nn.SAGEConv(5, 4)(
                torch.zeros(2, 5),
                torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1, 3), (2, 2, 3)),
            ),
            ValueError,
            "SAGEConv: edge_index: expected a sparse matrix of numbers, got values of shape",
        ),
    ],
)
def test_refusals(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_aggregation_over_a_sequence():
    """Aggregations of PyTorch Geometric get the edges in the order of the input."""
    original, drop_in = pair("SAGEConv", aggr="lstm")
    check_alike(original, drop_in)
    index = edges()
    index = index[:, index[1].argsort(stable=True)]
    check_same(original, drop_in, [draw(NODES, 5), index], order=1, single=False)


RELATIONS = 4
RELATIONAL = [
    {},
    {"num_bases": 2},
    {"num_blocks": 2},
    {"aggr": "add", "num_blocks": 2},
    {"aggr": "max", "num_bases": 2},
    {"aggr": "std"},
    {"root_weight": False, "bias": False},
    {"flow": "target_to_source", "is_sorted": True},
]


def relations():
    """Return a relation for each edge; one relation has no edges."""
    return torch.randint(RELATIONS - 1, (EDGES,))


def relational(channels=6, **options):
    made = []
    for package in (pyg, nn):
        torch.manual_seed(1)
        made.append(package.RGCNConv(channels, 4, RELATIONS, **options))
    return made


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("given", RELATIONAL, ids=str)
def test_relations(given, large, monkeypatch):
    """Features and rows of the matrices, with the sums of all relations at once or one by one."""
    if large:
        monkeypatch.setattr(rgcn_conv, "_LARGE", -1)
    original, drop_in = relational(**given)
    check_alike(original, drop_in)
    check_same(original, drop_in, [draw(NODES, 6), edges(), relations()])
    if "num_blocks" in given:
        with pytest.raises(ValueError, match="x: expected features where num_blocks is given"):
            drop_in(torch.arange(NODES), edges(), relations())
        return
    original, drop_in = relational(NODES, **given)
    for x in None, torch.arange(NODES).flip(0), (None, torch.arange(NODES)):
        check_same(original, drop_in, [x, edges(), relations()], single=False)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("large", [False, True])
def test_relations_of_two_kinds_of_nodes(large, monkeypatch):
    if large:
        monkeypatch.setattr(rgcn_conv, "_LARGE", -1)
    for count in (EDGES, 0):
        arguments = [(draw(20, 6), draw(30, 5)), edges(20, 30, count), relations()[:count]]
        check_same(*relational((6, 5)), arguments, single=False)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("given", [{}, {"num_bases": 2}, {"aggr": "max"}], ids=str)
def test_relations_compiled(given, packed):
    torch._dynamo.reset()
    _, layer = relational(**given)
    index = pt.Graph(*edges(), NODES) if packed else edges()
    arguments = [draw(NODES, 6), index, relations()]
    truth = results(layer, arguments, torch.float64, order=1)
    compiled = torch.compile(layer.double(), fullgraph=True, backend="aot_eager")
    found = results(lambda *a: compiled(*a), arguments, torch.float64, order=1, module=layer)
    assert distances(found, truth)[0] < 1e-12


@pytest.mark.usefixtures("_route")
def test_relations_that_change_are_seen():
    _, layer = relational()
    x, index, types = draw(NODES, 6).float(), edges(), relations()
    first = layer(x, index, types)
    types[:] = types.flip(0)
    second = layer(x, index, types)
    assert not torch.equal(first, second)
    torch.testing.assert_close(second, layer(x, index.clone(), types.clone()))


@pytest.mark.parametrize(
    ("x", "types", "kind", "message"),
    [
        (torch.zeros(NODES, 6), None, ValueError, "edge_type: expected the relation of each edge"),
        (torch.zeros(NODES, 6), torch.zeros(5).long(), ValueError, "edge_type: expected 120 rela"),
        (torch.zeros(NODES, 6), torch.zeros(EDGES), TypeError, "edge_type: expected int32 or"),
        (
            torch.zeros(NODES, 6),
            torch.full((EDGES,), RELATIONS),
            IndexError,
            "edge_type: expected relations from 0 to 3, got 4",
        ),
        (torch.zeros(NODES, 5), relations(), ValueError, r"x: expected 6 columns, got shape \(30"),
        (torch.zeros(NODES, 2).long(), relations(), ValueError, "x: expected one dimension"),
    ],
)
def test_refused_relations(x, types, kind, message):
    _, layer = relational()
    with pytest.raises(kind, match=f"RGCNConv: {message}"):
        layer(x, edges(), types)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_bases": 2, "num_blocks": 2}, "num_blocks: expected None where num_bases is given"),
        ({"num_blocks": 4}, "num_blocks: expected a divisor of in_channels=6"),
    ],
)
def test_refused_decompositions(options, message):
    with pytest.raises(ValueError, match=f"RGCNConv: {message}"):
        nn.RGCNConv(6, 4, 3, **options)


def continuous():
    made = []
    for package in (schnet, nn):
        torch.manual_seed(1)
        made.append(package.CFConv(5, 4, 6, network(3)[:2], 2.5))
    return made


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize(("nodes", "count"), [(NODES, EDGES), (NODES, 0), (0, 0)])
def test_continuous_filters(nodes, count):
    original, drop_in = continuous()
    check_alike(original, drop_in)
    arguments = [draw(nodes, 5), edges(nodes, nodes, count), weights(count), draw(count, 3)]
    check_same(original, drop_in, arguments, single=count > 0)


@pytest.mark.parametrize(
    ("lengths", "features", "kind", "message"),
    [
        (weights(5), draw(EDGES, 3), ValueError, "edge_weight: expected 120 lengths.*, got 5"),
        (None, draw(EDGES, 3), TypeError, "edge_weight: expected a torch.Tensor, got NoneType"),
        (weights(), None, ValueError, "edge_attr: expected features of the edges, got None"),
        (weights(), draw(5, 3), ValueError, "edge_attr: expected 120 rows"),
    ],
)
def test_refused_features(lengths, features, kind, message):
    _, layer = continuous()
    with pytest.raises(kind, match=f"CFConv: {message}"):
        layer.double()(draw(NODES, 5), edges(), lengths, features)
