"""`convert` swaps the layers of PyTorch Geometric in a model, in place."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.nn.models.schnet import CFConv  # noqa: E402

from pyops.torch import nn  # noqa: E402
from pyops.torch.nn import _convert  # noqa: E402
from pyops.torch.nn._messages import Messages  # noqa: E402

from ..layer_cases import PNA  # noqa: E402

NODES, EDGES = 12, 40
GENERATOR = torch.Generator().manual_seed(0)
INDEX = torch.randint(NODES, (2, EDGES), generator=GENERATOR)
X = torch.randn(NODES, 8, generator=GENERATOR, dtype=torch.float64)
FEATURES = torch.randn(EDGES, 3, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = FEATURES[:, 0].exp()


def mlp(*widths):
    return torch.nn.Sequential(torch.nn.Linear(*widths), torch.nn.BatchNorm1d(widths[1]))


class Holder(torch.nn.Module):
    """Module with one layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *given):
        return self.layer(*given)


LAYERS = {
    "GATConv": (lambda: pyg.GATConv(8, 4, 2, edge_dim=3, residual=True), [FEATURES]),
    "GATConv dropout": (lambda: pyg.GATConv(8, 4, 2, dropout=0.5), []),
    "GATConv two": (lambda: pyg.GATConv((8, 8), 4, aggr="max", bias=False), []),
    "GATConv lazy": (lambda: pyg.GATConv(-1, 4), []),
    "GATv2Conv": (lambda: pyg.GATv2Conv(8, 4, 2, share_weights=True, edge_dim=3), [FEATURES]),
    "TransformerConv": (lambda: pyg.TransformerConv(8, 4, 2, beta=True, edge_dim=3), [FEATURES]),
    "TransformerConv plain": (lambda: pyg.TransformerConv(8, 4, root_weight=False), []),
    "NNConv": (lambda: pyg.NNConv(8, 4, mlp(3, 32), aggr="mean"), [FEATURES]),
    "GCNConv": (lambda: pyg.GCNConv(8, 4, improved=True), [WEIGHTS]),
    "GCNConv cached": (lambda: pyg.GCNConv(8, 4, cached=True), [WEIGHTS]),
    "GCNConv lazy": (lambda: pyg.GCNConv(-1, 4, flow="target_to_source"), []),
    "SAGEConv": (lambda: pyg.SAGEConv(8, 4, project=True, normalize=True), []),
    "SAGEConv several": (lambda: pyg.SAGEConv(8, 4, ["mean", "std"]), []),
    "SAGEConv softmax": (
        lambda: pyg.SAGEConv(8, 4, "softmax", aggr_kwargs={"learn": True}),
        [],
    ),
    "GraphConv": (lambda: pyg.GraphConv(8, 4, aggr="max"), [WEIGHTS]),
    "RGCNConv": (lambda: pyg.RGCNConv(8, 4, 3), [INDEX[0] % 3]),
    "RGCNConv bases": (lambda: pyg.RGCNConv(8, 4, 3, num_bases=2, aggr="max"), [INDEX[0] % 3]),
    "CFConv": (lambda: CFConv(8, 4, 6, mlp(3, 6), 2.0), [WEIGHTS, FEATURES]),
    "PNAConv": (lambda: pyg.PNAConv(8, 4, *PNA, edge_dim=3, train_norm=True), [FEATURES]),
    "GINConv": (lambda: pyg.GINConv(mlp(8, 4), train_eps=True), []),
    "EdgeConv": (lambda: pyg.EdgeConv(mlp(16, 4)), []),
    "EdgeConv mean": (
        lambda: pyg.EdgeConv(pyg.MLP([16, 8, 4], act="tanh", norm=None), aggr="mean"),
        [],
    ),
    "GINConv buffer": (lambda: pyg.GINConv(mlp(8, 4), eps=0.4), []),
}
MODELS = {
    "GAT": lambda: pyg.GAT(8, 16, 2, 4, heads=2, jk="cat"),
    "GAT of the second version": lambda: pyg.GAT(8, 16, 2, v2=True, norm="batch"),
    "GCN": lambda: pyg.GCN(8, 16, 3, dropout=0.3),
    "GraphSAGE": lambda: pyg.GraphSAGE(8, 16, 2, 4, aggr="max"),
    "GIN": lambda: pyg.GIN(8, 16, 2, 4),
    "HeteroConv": lambda: Of(pyg.HeteroConv({("a", "to", "a"): pyg.SAGEConv(8, 4)})),
    "to_hetero": lambda: Of(pyg.to_hetero(pyg.GraphSAGE(8, 4, 2), (["a"], [("a", "to", "a")]))),
    "Sequential": lambda: pyg.Sequential(
        "x, edge_index", [(pyg.GCNConv(8, 4), "x, edge_index -> x"), torch.nn.ReLU()]
    ),
}


class Of(Holder):
    """Module of several types of nodes, of which there is one."""

    def forward(self, x, index):
        return self.layer({"a": x}, {("a", "to", "a"): index})["a"]


def step(model, given):
    """Return the results and gradients of a model."""
    torch.manual_seed(3)
    model.zero_grad()
    y = model(*given)
    (y * y.sin()).sum().backward()
    gradients = [torch.zeros(()) if p.grad is None else p.grad for p in model.parameters()]
    return [y.detach(), *(g.clone() for g in gradients)]


def assert_equal(one, other):
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_every_layer_is_converted():
    public = {kind for kind in vars(nn).values() if isinstance(kind, type)}
    known = {*_convert.LAYERS, *_convert.CUGRAPH.values()}
    assert {kind for kind in public if issubclass(kind, Messages)} == known
    assert {name.split()[0] for name in LAYERS} == {kind.__name__ for kind in _convert.LAYERS}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, training):
    """The same results, gradients, text, names and objects as before."""
    make, more = LAYERS[name]
    torch.manual_seed(0)
    model = Holder(make()).double().train(training)
    given = X, INDEX, *more
    with torch.no_grad():
        model(*given)  # sets lazy widths and caches
    before = copy.deepcopy(model)
    original = model.layer
    held = [*model.named_parameters(), *model.named_buffers()]
    report = nn.convert(model)
    assert report.swapped == {"layer": name.split()[0]}
    assert not report.left
    assert type(model.layer) is getattr(nn, name.split()[0])
    assert repr(model) == repr(before)
    assert model.training is model.layer.training is training
    found = [*model.named_parameters(), *model.named_buffers()]
    assert all(n == m and p is q for (n, p), (m, q) in zip(found, held, strict=True))
    assert [*model.state_dict()] == [*before.state_dict()]
    assert_equal(step(model, given), step(before, given))
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert_equal(step(again, given), step(before, given))
    options = {} if name in ("CFConv", "PNAConv") else {"aggr": original.aggr}
    constructed = vars(type(model.layer)(*arguments(name), **options)).keys()
    own = vars(model.layer).keys() | model.layer._modules.keys() | model.layer._parameters.keys()
    assert constructed <= own


def arguments(name):
    networks = {"NNConv": (8, 4, mlp(3, 32)), "GINConv": (mlp(8, 4),), "RGCNConv": (8, 4, 3)}
    networks["PNAConv"] = 8, 4, *PNA
    networks["CFConv"] = 8, 4, 6, mlp(3, 6), 2.0
    networks["EdgeConv"] = (mlp(16, 4),)
    return networks.get(name.split()[0], (8, 4))


@pytest.mark.parametrize("name", ["GATConv lazy", "GCNConv lazy"])
def test_lazy_widths(name):
    model = Holder(LAYERS[name][0]()).double()
    before = copy.deepcopy(model)
    nn.convert(model)
    found = []
    for one in before, model:
        torch.manual_seed(5)
        found.append(one(X, INDEX))
    assert_equal(*found)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    """Models of PyTorch Geometric train on with the same optimizer."""
    torch.manual_seed(0)
    model = MODELS[name]().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step(model, (X, INDEX))
    optimizer.step()
    before = copy.deepcopy((model, optimizer))
    report = nn.convert(model)
    assert report.swapped
    assert not report.left
    assert not any(isinstance(part, pyg.MessagePassing) for part in model.modules())
    assert_equal(step(model, (X, INDEX)), step(before[0], (X, INDEX)))
    optimizer.step()
    before[1].step()
    assert_equal(step(model, (X, INDEX)), step(before[0], (X, INDEX)))


def test_a_model_of_molecules():
    torch.manual_seed(0)
    graph = lambda pos, _: (INDEX, (pos[INDEX[0]] - pos[INDEX[1]]).norm(dim=1) + 0.1)  # noqa: E731
    model = pyg.SchNet(8, 6, 2, 5, interaction_graph=graph).double()
    given = torch.ones(NODES).long(), X[:, :3]
    truth = step(model, given)
    assert [*nn.convert(model).swapped] == ["interactions.0.conv", "interactions.1.conv"]
    assert_equal(step(model, given), truth)


def test_edges_that_an_original_has_cached():
    model = Holder(pyg.GCNConv(8, 4, cached=True)).double()
    truth = model(X, INDEX)
    nn.convert(model)
    assert_equal(model(X, INDEX.flip(0)), truth)


def test_shared_and_nested_modules():
    shared = pyg.SAGEConv(8, 8)
    inner = torch.nn.Sequential(torch.nn.Linear(8, 8))
    inner.other = shared
    model = torch.nn.ModuleDict({"a": shared, "b": pyg.GINConv(inner), "c": shared})
    report = nn.convert(model)
    assert [*report.swapped] == ["a", "b", "b.nn.other", "c"]
    assert model["a"] is model["c"] is model["b"].nn.other
    assert not nn.convert(model).swapped


def test_hooks_go_on_and_can_be_removed():
    model, seen = Holder(pyg.SAGEConv(8, 4)), []
    handle = model.layer.register_forward_hook(lambda module, _, y: seen.append(type(module)))
    nn.convert(model)
    model(X.float(), INDEX)
    assert seen == [nn.SAGEConv]
    handle.remove()
    model(X.float(), INDEX)
    assert len(seen) == 1


class Mine(pyg.GATConv):
    """Subclass of a layer."""


def changed(change, **options):
    layer = pyg.SAGEConv(8, 4, **options)
    change(layer)
    return layer


LEFT = {
    "Mine: a subclass of GATConv": lambda: Mine(8, 4),
    "ChebConv: pyops.torch.nn has none": lambda: pyg.ChebConv(8, 4, 2),
    "SGConv: pyops.torch.nn has none; use pyops.torch.degree_normalised": lambda: pyg.SGConv(8, 4),
    "SAGEConv: its forward was replaced": lambda: changed(
        lambda layer: setattr(layer, "forward", lambda x, index: x)
    ),
    "SAGEConv: it has hooks on message": lambda: changed(
        lambda layer: layer.register_message_forward_hook(print)
    ),
    "SAGEConv: it has hooks on propagate": lambda: changed(
        lambda layer: layer.register_propagate_forward_pre_hook(print)
    ),
    "SAGEConv: an explainer uses it": lambda: changed(
        lambda layer: setattr(layer, "_explain", True)
    ),
    "SAGEConv: node_dim: expected -2, got -3": lambda: changed(lambda _: None, node_dim=-3),
    "SAGEConv: decomposed_layers: expected 1, got 2": lambda: changed(
        lambda layer: setattr(layer, "_decomposed_layers", 2)
    ),
    "SAGEConv: aggr_module: expected the reduction mean, got MaxAggregation()": lambda: changed(
        lambda layer: setattr(layer, "aggr_module", pyg.MaxAggregation())
    ),
    "SAGEConv: aggr_module: expected the reduction mean, got MeanAgg": lambda: changed(
        lambda layer: layer.aggr_module.register_forward_hook(print)
    ),
}


@pytest.mark.parametrize("reason", LEFT)
def test_layers_that_are_left(reason):
    layer = LEFT[reason]()
    model = Holder(layer)
    report = nn.convert(model)
    assert not report.swapped
    assert report.left["layer"].startswith(reason)
    assert model.layer is layer


def test_report():
    model = torch.nn.ModuleList([pyg.GCNConv(8, 4), pyg.GCNConv(4, 4), pyg.ChebConv(4, 4, 2)])
    assert repr(nn.convert(model)).splitlines() == [
        "2 layers swapped",
        "  0: GCNConv",
        "  1: GCNConv",
        "1 layer left",
        "  2: ChebConv: pyops.torch.nn has none",
    ]
    assert repr(nn.convert(torch.nn.Linear(3, 4))) == "0 layers swapped\n0 layers left"


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (pyg.GCNConv(8, 4), ValueError, r"got a layer: use pyops\.torch\.nn\.GCNConv"),
        ("model", TypeError, r"expected a torch\.nn\.Module, got str"),
    ],
)
def test_refusals(model, kind, message):
    with pytest.raises(kind, match=rf"pyops\.torch\.nn\.convert: model: .*{message}"):
        nn.convert(model)
