"""EdgeConv against that of PyTorch Geometric, and compiled layers of networks on edges."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import pyops.torch as pt  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn import _networks, edge_conv, mesh_graph_net  # noqa: E402
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

WIDTH = 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=["operators", "torch"])
def way(request, monkeypatch):
    """Compute small graphs by operators, or by operations of torch."""
    least = 0 if request.param == "operators" else 2**40
    monkeypatch.setitem(routes.PACKED, "edge_network", least)
    return request.param


@pytest.fixture
def calls(monkeypatch):
    """Names of the operators that layers call."""
    seen = []

    class Recorded:
        def __getattr__(self, name):
            seen.append(name)
            return getattr(pt, name)

    for module in edge_conv, mesh_graph_net:
        monkeypatch.setattr(module, "_ops", Recorded())
    return seen


def network(*widths, activation=torch.nn.ReLU, bias=True, last=()):
    layers = []
    for one, other in itertools.pairwise(widths):
        layers += [activation(), torch.nn.Linear(one, other, bias)]
    return torch.nn.Sequential(*layers[1:], *last)


def mlp(**options):
    given = {"in_channels": 2 * WIDTH, "hidden_channels": 8, "out_channels": 4, "num_layers": 3}
    return pyg.MLP(**given, **options)


COMPUTED = {
    **{
        kind.__name__: lambda kind=kind: network(2 * WIDTH, 8, 4, activation=kind)
        for kind in (torch.nn.ReLU, torch.nn.SiLU, torch.nn.GELU, torch.nn.Tanh)
    },
    "deep": lambda: network(2 * WIDTH, 7, 7, 7, 3, activation=torch.nn.SiLU),
    "no bias": lambda: network(2 * WIDTH, 8, 4, activation=torch.nn.Tanh, bias=False),
    "norm": lambda: network(
        2 * WIDTH, 8, 6, activation=torch.nn.GELU, last=[torch.nn.LayerNorm(6)]
    ),
    "linear of PyG": lambda: torch.nn.Sequential(
        pyg.Linear(2 * WIDTH, 8), torch.nn.SiLU(), pyg.Linear(8, 4)
    ),
    "MLP": lambda: mlp(act="silu", norm=None),
}
OTHERS = {
    "one layer": lambda: network(2 * WIDTH, 4),
    "widths": lambda: network(2 * WIDTH, 8, 7, 4, activation=torch.nn.SiLU),
    "activations": lambda: torch.nn.Sequential(
        *network(2 * WIDTH, 8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)
    ),
    "fast gelu": lambda: network(
        2 * WIDTH, 8, 4, activation=lambda: torch.nn.GELU(approximate="tanh")
    ),
    "bounded": lambda: network(2 * WIDTH, 8, 4, last=[torch.nn.Tanh()]),
    "epsilon": lambda: network(
        2 * WIDTH, 8, 6, activation=torch.nn.SiLU, last=[torch.nn.LayerNorm(6, eps=1e-3)]
    ),
    "MLP with norms": lambda: mlp(norm="layer_norm"),
    "MLP with last activation": lambda: mlp(norm=None, act="tanh", plain_last=False),
}
NETWORKS = COMPUTED | OTHERS
OPTIONS = [
    {},
    {"aggr": "min"},
    {"aggr": "add"},
    {"aggr": "sum"},
    {"aggr": "mean"},
    {"aggr": "median"},
    {"aggr": ["mean", "softmax"]},
    {"aggr": "add", "flow": "target_to_source"},
]


def pair(make, **options):
    layers = []
    for package in (pyg, nn):
        torch.manual_seed(1)
        layers.append(package.EdgeConv(make(), **options))
    return layers


@pytest.mark.parametrize("name", ["SiLU", "MLP", "bounded"])
@pytest.mark.parametrize("given", OPTIONS, ids=str)
def test_options(name, given, way):
    original, drop_in = pair(NETWORKS[name], **given)
    check_alike(original, drop_in)
    check_same(original, drop_in, [draw(NODES, WIDTH), edges()])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("aggr", ["max", "mean"])
def test_networks(name, aggr, calls):
    original, drop_in = pair(NETWORKS[name], aggr=aggr)
    check_alike(original, drop_in)
    check_same(original, drop_in, [draw(NODES, WIDTH), edges()])
    operators = {"max": {"edge_mlp", "aggregate"}, "mean": {"edge_network"}}[aggr]
    assert {*calls} == (operators if name in COMPUTED else set())


@pytest.mark.parametrize("name", ["Tanh", "bounded"])
@pytest.mark.parametrize("aggr", ["max", "add", "mean"])
def test_two_kinds_of_nodes(name, aggr, way):
    original, drop_in = pair(NETWORKS[name], aggr=aggr)
    x = draw(20, WIDTH), draw(30, WIDTH)
    check_same(original, drop_in, [x, edges(20, 30)])


@pytest.mark.parametrize("name", ["ReLU", "bounded"])
@pytest.mark.parametrize("aggr", ["max", "add", "mean"])
@pytest.mark.parametrize(("nodes", "count"), [(NODES, 0), (0, 0), (1, 1)])
def test_empty(name, aggr, nodes, count, way):
    original, drop_in = pair(NETWORKS[name], aggr=aggr)
    index = torch.zeros(2, count, dtype=torch.long)
    check_same(original, drop_in, [draw(nodes, WIDTH), index], single=False)


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_maximum_without_derivatives(aggr, calls):
    original, drop_in = pair(NETWORKS["ReLU"], aggr=aggr)
    x, index = draw(NODES, WIDTH).float(), edges()
    with torch.no_grad():
        torch.testing.assert_close(drop_in(x, index), original(x, index))
    assert calls == ["edge_mlp", "aggregate"]


@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
def test_derivatives(aggr):
    layer = nn.EdgeConv(network(4, 3, 2, activation=torch.nn.Tanh), aggr).double()
    index, names = edges(4, 5, 7), [name for name, _ in layer.named_parameters()]

    def call(left, right, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, given, ((left, right), index))

    leaves = [draw(4, 2), draw(5, 2), *layer.parameters()]
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves)


@pytest.mark.parametrize("place", [None, 0, 1, 2])
def test_hooks_are_called(place):
    seen = []
    _, layer = pair(NETWORKS["ReLU"])
    x, index = draw(NODES, WIDTH).float(), edges()
    plain = layer(x, index)
    hooked = layer.nn if place is None else layer.nn[place]
    hooked.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(layer(x, index), plain)
    assert seen == [1]


@pytest.mark.parametrize("form", ["graph", "csc", "sparse"])
def test_other_forms_of_edges(form):
    original, drop_in = pair(NETWORKS["SiLU"], aggr="add")
    index = edges().unique(dim=1)
    index = index[:, index[1].argsort(stable=True)]
    offsets = torch.nn.functional.pad(torch.bincount(index[1], minlength=NODES).cumsum(0), (1, 0))
    values = torch.ones(index.shape[1])
    given = {
        "graph": lambda: pt.Graph(index[0], index[1], NODES, NODES),
        "csc": lambda: (offsets, index[0]),
        "sparse": lambda: torch.sparse_csr_tensor(offsets, index[0], values, (NODES, NODES)),
    }[form]()
    x = draw(NODES, WIDTH).float()
    torch.testing.assert_close(drop_in(x, given), original(x, index))


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (torch.zeros(NODES, 4), ValueError, r"x: expected half of the 10 columns that nn takes"),
        ((torch.zeros(NODES, 5), torch.zeros(NODES, 4)), ValueError, r"x: expected half of the 10"),
        (
            torch.zeros(NODES, 5).double(),
            TypeError,
            r"x: expected torch.float32 like nn, got",
        ),
        ((torch.zeros(NODES, 5), None), TypeError, r"x: expected features of the destinations"),
    ],
)
def test_refusals(x, kind, message):
    with pytest.raises(kind, match=rf"pyops\.torch\.nn\.EdgeConv: {message}"):
        nn.EdgeConv(NETWORKS["ReLU"]())(x, edges())


def test_too_many_layers():
    sizes = [4] * (_networks._MOST_LAYERS + 2)
    assert _networks.network_of(network(*sizes)) is not None
    assert _networks.network_of(network(*sizes, 4)) is None
    assert _networks.network_of(torch.nn.Sequential()) is None


COMPILED = {
    "EdgeConv add": (
        lambda: nn.EdgeConv(NETWORKS["SiLU"](), "add"),
        [(NODES, WIDTH)],
    ),
    "EdgeConv max": (lambda: nn.EdgeConv(NETWORKS["SiLU"]()), [(NODES, WIDTH)]),
    "EdgeConv of any network": (lambda: nn.EdgeConv(NETWORKS["bounded"]()), [(NODES, WIDTH)]),
    "MeshGraphNetProcessor": (
        lambda: nn.MeshGraphNetProcessor(2, 4, 4),
        [(NODES, 4), (EDGES, 4)],
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    torch._dynamo.reset()
    make, sizes = COMPILED[name]
    layer = make().double()
    arguments = [*(draw(*size) for size in sizes), edges()]
    truth = results(copy.deepcopy(layer), arguments, torch.float64, order=1)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = results(lambda *a: compiled(*a), arguments, torch.float64, order=1, module=layer)
    assert distances(found, truth)[0] < 1e-12
