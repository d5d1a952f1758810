"""Layers with device tensors: the results of the host, without unnecessary synchronization.

Most of the file is one table, of all layers and their arguments, so this is one file.
"""

import pytest

from ..host import COMPILER

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops.cuda import _device  # noqa: E402
from pyops.torch import _cuda, nn  # noqa: E402
from pyops.torch.nn._dimenet import swish  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

from .emulated import DEVICE, Elsewhere, Memory, array, from_numpy, tensor  # noqa: E402

NODES, EDGES = 6, 20


@pytest.fixture
def platform(monkeypatch):
    made = Memory()
    monkeypatch.setattr(_device, "found", lambda: made)
    monkeypatch.setattr(_cuda, "stream_of", lambda device: 1234)
    monkeypatch.setattr(_cuda, "_array", array)
    monkeypatch.setattr(_cuda, "_tensor", tensor)
    monkeypatch.setattr(torch, "from_numpy", from_numpy)
    return made


def edges(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, NODES, (2, EDGES), generator=draw)


def rows(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def made(kind, *arguments, **given):
    torch.manual_seed(0)
    arguments = [a() if a in (network, perceptron, linear) else a for a in arguments]
    return getattr(nn, kind)(*arguments, **given).double()


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.SiLU(), torch.nn.Linear(5, 8))


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.SiLU(), torch.nn.Linear(5, 4))


def linear():
    return torch.nn.Linear(8, 4)


INDEX = edges()
SORTED = INDEX[:, INDEX[1].argsort(stable=True)]
OFFSETS = torch.cat(
    [torch.zeros(1, dtype=torch.long), torch.bincount(SORTED[1], minlength=NODES).cumsum(0)]
)
FORMS = {
    "tensor": lambda: edges(),
    "offsets": lambda: (OFFSETS.clone(), SORTED[0].clone()),
    "csr": lambda: torch.sparse_csr_tensor(OFFSETS, SORTED[0], torch.ones(EDGES), (NODES, NODES)),
    "graph": lambda: pt.Graph(INDEX[0], INDEX[1], NODES),
}
X, WIDE, FEATURES = rows(NODES, 4), rows(EDGES, 16), rows(EDGES, 3)
SMALL = {"num_before_skip": 1, "num_after_skip": 1, "num_output_layers": 1}


def layer(kind, *arguments, form="tensor", call=None, **given):
    """Return a new layer, its differentiable tensors and its other arguments."""
    call = call or (lambda layer, x, index: layer(x, index))
    inputs = [X, FEATURES] if call is with_features else [X]
    return lambda: (made(kind, *arguments, **given), call, inputs, [FORMS[form]()])


def relational(kind):
    return lambda: (
        made(kind, 4, 3, 2),
        lambda layer, x, index, types: layer(x, index, types),
        [X],
        [edges(), edges()[0] % 2],
    )


def with_features(layer, x, features, index):
    return layer(x, index, features)


def function(name, src, *more, **given):
    return lambda: (
        getattr(nn, name),
        lambda f, x, *m: f(x, *m, **given),
        [src],
        [m() for m in more],
    )


def group():
    return edges()[1]


def stretches():
    return OFFSETS.clone()


def block(kind, sizes, *inputs, indices=()):
    return lambda: (
        made(kind, *sizes),
        lambda layer, *given: layer(*given),
        [*inputs],
        [make() for make in indices],
    )


def neighbours():
    return {"neighbors_index": SORTED[0].clone(), "neighbors_row_splits": OFFSETS.clone()}


def atoms():
    return torch.tensor([1, 6, 8, 1, 6, 8])


def batch():
    return torch.tensor([0, 0, 0, 1, 1, 1])


def model(kind, *sizes, **given):
    """Return a model of molecules, for two of them in free space and in cells."""
    kept = {"cutoff": 2.5, "max_num_neighbors": None, **given}
    free = [atoms(), batch()]
    cells = [3 * torch.eye(3).double().repeat(2, 1, 1), torch.tensor([True, False, True])]

    def case(more):
        call = lambda layer, pos, z, *others: layer(z, pos, *others)  # noqa: E731
        return made(kind, *sizes, **kept), call, [rows(NODES, 3)], [*free, *more]

    return {kind: lambda: case([]), f"{kind} cells": lambda: case(cells)}


GNO = {
    "use_open3d_neighbor_search": False,
    "channel_mlp_layers": [8, 8],
    "pos_embedding_type": None,
}
LAYERS = {
    "GATConv": layer("GATConv", 4, 3, heads=2),
    "GATConv of edges": layer("GATConv", 4, 3, edge_dim=3, fill_value="mean", call=with_features),
    "GATConv of a maximum": layer("GATConv", 4, 3, heads=2, aggr="max"),
    "GATv2Conv": layer("GATv2Conv", 4, 3, heads=2),
    "GATv2Conv with weights": layer(
        "GATv2Conv",
        4,
        3,
        add_self_loops=False,
        call=lambda layer, x, index: layer(x, index, return_attention_weights=True)[1][1],
    ),
    "TransformerConv": layer("TransformerConv", 4, 3, heads=2, aggr="mean"),
    "TransformerConv backwards": layer("TransformerConv", 4, 3, flow="target_to_source"),
    **{
        f"TransformerConv of {form}": layer("TransformerConv", 4, 3, form=form)
        for form in ("offsets", "csr", "graph")
    },
    "NNConv": layer("NNConv", 4, 2, network, call=with_features),
    "NNConv of a maximum": layer("NNConv", 4, 2, network, aggr="max", call=with_features),
    "GCNConv": layer("GCNConv", 4, 3),
    "GCNConv of weights": layer(
        "GCNConv", 4, 3, call=lambda layer, x, index: layer(x, index, x.new_ones(EDGES))
    ),
    "SAGEConv": layer("SAGEConv", 4, 3),
    "SAGEConv of a maximum": layer("SAGEConv", 4, 3, aggr="max"),
    "SAGEConv of csr": layer("SAGEConv", 4, 3, form="csr"),
    "GraphConv": layer("GraphConv", 4, 3),
    "CFConv": lambda: (
        made("CFConv", 4, 3, 8, network, 2.0),
        lambda layer, x, lengths, features, index: layer(x, index, lengths, features),
        [X, rows(EDGES).abs(), FEATURES],
        [edges()],
    ),
    "PNAConv": layer("PNAConv", 4, 3, ["mean", "std", "max"], ["linear"], torch.tensor([1, 2, 3])),
    "CuGraphSAGEConv": layer("CuGraphSAGEConv", 4, 3),
    "CuGraphGATConv": layer("CuGraphGATConv", 4, 3, heads=2),
    "RGCNConv": relational("RGCNConv"),
    "CuGraphRGCNConv": relational("CuGraphRGCNConv"),
    "RGCNConv of rows": lambda: (
        made("RGCNConv", NODES, 3, 2),
        lambda layer, x, index, types: layer(None, index, types) * x.sum(),
        [X],
        [edges(), edges()[0] % 2],
    ),
    "GINConv": lambda: (
        made("GINConv", torch.nn.Linear(4, 3), train_eps=True),
        lambda layer, x, index: layer(x, index),
        [X],
        [FORMS["tensor"]()],
    ),
    "EdgeConv": layer("EdgeConv", perceptron, aggr="mean"),
    "EdgeConv of a maximum": layer("EdgeConv", perceptron),
    "EdgeConv of any network": layer("EdgeConv", linear),
    "MeshEdgeBlock": lambda: (
        made("MeshEdgeBlock", 4, 3, 3, 8),
        lambda layer, x, features, index: layer(features, x, index)[0],
        [X, FEATURES],
        [edges()],
    ),
    "MeshNodeBlock": lambda: (
        made("MeshNodeBlock", "sum", 4, 3, 4, 8),
        lambda layer, x, features, index: layer(features, x, index)[1],
        [X, FEATURES],
        [edges()],
    ),
    "MeshGraphNetProcessor": lambda: (
        made("MeshGraphNetProcessor", 2, 4, 4),
        lambda layer, x, features, index: layer(x, features, index),
        [X, rows(EDGES, 4)],
        [edges()],
    ),
    "scatter": function("scatter", WIDE, group, reduce="mean", dim_size=NODES),
    "scatter of narrow rows": function("scatter", FEATURES, group),
    "segment": function("segment", WIDE, stretches),
    "softmax": function("softmax", WIDE, group),
    "softmax of stretches": lambda: (
        nn.softmax,
        lambda f, x, ptr: f(x, None, ptr),
        [WIDE],
        [OFFSETS.clone()],
    ),
    "BesselBasisLayer": block("BesselBasisLayer", [4, 5.0], rows(EDGES).abs() + 0.5),
    "SphericalBasisLayer": block(
        "SphericalBasisLayer",
        [3, 2],
        rows(EDGES).abs() + 0.5,
        rows(9),
        indices=[lambda: torch.arange(9)],
    ),
    "EmbeddingBlock": lambda: (
        made("EmbeddingBlock", 3, 8, swish),
        lambda layer, rbf, z, i, j: layer(z, rbf, i, j),
        [FEATURES],
        [atoms(), *edges()],
    ),
    "ResidualLayer": block("ResidualLayer", [16, swish], WIDE),
    "InteractionPPBlock": block(
        "InteractionPPBlock",
        [16, 4, 4, 2, 3, 1, 1, swish],
        WIDE,
        FEATURES,
        rows(9, 6),
        indices=[lambda: torch.arange(9), lambda: torch.arange(9) % 4],
    ),
    "OutputPPBlock": block(
        "OutputPPBlock",
        [3, 16, 8, 2, 1, swish, "glorot_orthogonal"],
        WIDE,
        FEATURES,
        indices=[group],
    ),
    **model(
        "DimeNetPlusPlus", 8, 1, 1, 4, 4, 8, 3, 2, **SMALL, output_initializer="glorot_orthogonal"
    ),
    **model("SchNet", 8, 6, 1, 5),
    "InteractionBlock": lambda: (
        made("InteractionBlock", 4, 3, 8, 2.0),
        lambda layer, x, lengths, features, index: layer(x, index, lengths, features),
        [X, rows(EDGES).abs(), FEATURES],
        [edges()],
    ),
    "GaussianSmearing": block("GaussianSmearing", [0.0, 2.0, 4], rows(EDGES).abs()),
    "ShiftedSoftplus": block("ShiftedSoftplus", [], FEATURES),
    "SinusoidalEmbedding": block("SinusoidalEmbedding", [3, 4], FEATURES),
    "LinearChannelMLP": block("LinearChannelMLP", [[3, 8, 4]], FEATURES),
    "NeighborSearch": lambda: (
        made("NeighborSearch", False, True),
        lambda layer, x, y: layer(x, y, 1.5)["weights"],
        [X[:, :3], X[:3, :3] + 0.1],
        [],
    ),
    "IntegralTransform": lambda: (
        made("IntegralTransform", channel_mlp_layers=[8, 8, 4]),
        lambda layer, y, f, near: layer(y, near, None, f),
        [X, rows(NODES, 4, seed=1)],
        [neighbours()],
    ),
    "GNOBlock": lambda: (
        made("GNOBlock", 4, 4, 3, 1.5, transform_type="linear", **GNO),
        lambda layer, y, x, f: layer(y, x, f),
        [X[:, :3], X[:3, :3] + 0.1, rows(NODES, 4, seed=1)],
        [],
    ),
}
BY_HOST = "DimeNetPlusPlus", "SchNet", "NeighborSearch", "GNOBlock"
"""Layers that read elements on the host in every call."""
BY_TORCH = (
    "GATConv of a maximum",
    "EdgeConv of any network",
    "RGCNConv of rows",
    "scatter of narrow rows",
    "SinusoidalEmbedding",
    "LinearChannelMLP",
    "NeighborSearch",
    "GaussianSmearing",
    "ShiftedSoftplus",
)
"""Layers and functions that call no operator."""


def value_and_gradients(model, call, inputs, others):
    """Return the value of a layer, and its first and second derivatives."""
    weights = [*model.parameters()] if isinstance(model, torch.nn.Module) else []
    leaves = [i.detach().clone().requires_grad_() for i in inputs]
    y = call(model, *leaves, *others)
    run, every = torch.autograd.graph._engine_run_backward, (*leaves, *weights)
    gy = rows(*y.shape, seed=2).to(y.device).requires_grad_()
    told = {"allow_unreachable": True, "accumulate_grad": False}
    first = run((y,), (gy,), True, True, every, **told)
    found = [g for g in first if g is not None and g.requires_grad]
    h = tuple(rows(*g.shape, seed=3).to(y.device) for g in found)
    second = run(tuple(found), h, False, False, (*every, gy), **told) if found else ()
    return [y, *first, *second]


def test_every_layer_is_here():
    public = {name for name, value in vars(nn).items() if name[0] != "_" and callable(value)}
    public -= {"InParts", "Replicated", "convert"}  # of ranks, which have CPUs alone; of modules
    assert {name.partition(" ")[0] for name in LAYERS} == public


@pytest.mark.parametrize("name", LAYERS)
def test_the_numbers_of_the_host(name, platform, monkeypatch):
    """Results equal those of the host's operators, which a device uses at any size."""
    for operator in routes.PACKED:
        monkeypatch.setitem(routes.PACKED, operator, 0)
    expected = value_and_gradients(*LAYERS[name]())
    case = LAYERS[name]()
    with Elsewhere() as there:
        got = value_and_gradients(*case)
        assert {there.place(g) for g in got if g is not None} == {DEVICE}
        there.waits.clear()
        again = value_and_gradients(*case)
    assert bool(there.waits) == (name.split()[0] in BY_HOST), there.waits
    assert bool(platform.streams) == (name not in BY_TORCH)
    for one, other, truth in zip(got, again, expected, strict=True):
        assert (one is None) == (truth is None)
        if truth is not None:
            torch.testing.assert_close(one, truth, rtol=1e-9, atol=1e-11)
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", LAYERS)
def test_where_torch_traces(name, platform, monkeypatch):
    """All tensors that a layer creates are on the device of its inputs."""
    with torch.no_grad():
        model, call, inputs, others = LAYERS[name]()
        expected = call(model, *inputs, *others)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        with Elsewhere() as there:
            y = call(model, *inputs, *others)
    assert there.place(y) == DEVICE
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-11)
