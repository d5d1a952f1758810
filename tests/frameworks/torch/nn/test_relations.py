"""RGCNConv and CFConv against those of PyTorch Geometric."""

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.nn.models import schnet  # noqa: E402

import pyops.torch as pt  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn import rgcn_conv  # noqa: E402

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
from .test_aggregating import _route as _route  # noqa: E402
from .test_aggregating import _seed as _seed  # noqa: E402
from .test_aggregating import network, weights  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*[Ss]parse (CSR|invariant)", "ignore:Converting sparse"
)

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


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("given", [*RELATIONAL[:2], {"aggr": "add"}, RELATIONAL[-1]], ids=str)
def test_relations_of_few_edges(given, monkeypatch):
    """Messages are multiplied before their sum where nodes and relations are more than edges."""
    made = []
    product = rgcn_conv.RGCNConv._of_messages

    def counted(*arguments):
        made.append(product(*arguments))
        return made[-1]

    monkeypatch.setattr(rgcn_conv.RGCNConv, "_of_messages", counted)
    index, types = edges(NODES, NODES, EDGES // 3), relations()[: EDGES // 3]
    original, drop_in = relational(**given)
    check_same(original, drop_in, [draw(NODES, 6), index, types])
    layer, x = drop_in.double(), draw(NODES, 6)
    made.clear()
    y = layer(x, pt.Graph(*index, NODES, NODES), types)
    assert made or "flow" in given
    monkeypatch.setattr(rgcn_conv, "_LINEAR", ())
    torch.testing.assert_close(y, layer(x, pt.Graph(*index, NODES, NODES), types))


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
