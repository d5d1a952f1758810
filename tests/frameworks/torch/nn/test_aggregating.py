"""GCNConv, SAGEConv, GraphConv, GINConv, RGCNConv and CFConv against those of PyTorch Geometric."""

import copy
import pickle

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
    {"aggr": "var"},
    {"aggr": "softmax", "aggr_kwargs": {"t": 0.7}},
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
