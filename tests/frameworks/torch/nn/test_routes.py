"""The two implementations of reductions in layers: operations of torch, and packed graphs."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric")

from pyops._call.operator import OPERATORS  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._edges import layer_edges, routes  # noqa: E402

from .comparison import distances, pair, results  # noqa: E402

NODES, EDGES = 7, 30
INDEX = torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))
GROUPS = INDEX[1]
PTR = torch.nn.functional.pad(torch.bincount(GROUPS, minlength=NODES).cumsum(0), (1, 0))
GRAPH_LAYERS = "GATConv", "GATv2Conv", "TransformerConv"
FUNCTIONS = {
    "scatter": lambda x, given: nn.scatter(x, given[0], dim_size=NODES),
    "scatter mean": lambda x, given: nn.scatter(x, given[0], 0, NODES, "mean"),
    "softmax": lambda x, given: nn.softmax(x, given[0], num_nodes=NODES),
    "softmax ptr": lambda x, given: nn.softmax(x, None, given[1]),
    "segment": lambda x, given: nn.segment(x, given[1]),
    "segment mean": lambda x, given: nn.segment(x, given[1], "mean"),
}
AGGREGATING = "GCNConv", "SAGEConv", "GraphConv", "GINConv"
NAMES = [*FUNCTIONS, *GRAPH_LAYERS, "NNConv", "GATConv mean", "NNConv mean", "GATConv edges"]
RELATIONAL = "RGCNConv", "CuGraphRGCNConv"
NAMES += [*AGGREGATING, "GCNConv mean", "GraphConv weights", *RELATIONAL, "CuGraphGATConv"]
NAMES += ["CuGraphSAGEConv"]


@pytest.fixture
def route(monkeypatch):
    """Forces an implementation at any size."""

    def choose(packed):
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0 if packed else 2**62)

    return choose


def call_of(name):
    """Return a function of features and indices, and the module with its parameters."""
    if name in FUNCTIONS:
        return FUNCTIONS[name], torch.nn.Identity()
    kind, _, what = name.partition(" ")
    options = {"aggr": "mean"} if what == "mean" else {"edge_dim": 9} if what == "edges" else {}
    arguments = (9, 4) if kind in (*AGGREGATING, "CuGraphSAGEConv") else (9, 4, 2)
    others = {"NNConv": (9, 4, torch.nn.Linear(9, 36)), "GINConv": (torch.nn.Linear(9, 4),)}
    arguments = (others | dict.fromkeys(RELATIONAL, (9, 4, 3))).get(kind, arguments)
    torch.manual_seed(0)
    module = getattr(nn, kind)(*arguments, **options).double()
    if kind == "NNConv" or what == "edges":
        return lambda x, given: module(x[:NODES], given[2], x), module
    if kind in RELATIONAL:
        return lambda x, given: module(x[:NODES], given[2], torch.arange(EDGES) % 3), module
    if what == "weights":
        return lambda x, given: module(x[:NODES], given[2], x[:, 0]), module
    return lambda x, given: module(x[:NODES], given[2]), module


def features():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(EDGES, 9, dtype=torch.float64, generator=generator)


GIVEN = [GROUPS, PTR, INDEX]


def test_every_operator_has_a_name_and_each_way_of_calling_is_tested():
    assert {*routes.PACKED} <= {*OPERATORS, "neighbours"}
    used = {name.split()[0] for name in NAMES}
    kinds = {name for name, kind in vars(nn).items() if hasattr(kind, "_operator")}
    assert kinds | {"scatter", "softmax", "segment", "NNConv"} == used
    assert {getattr(nn, name)._operator for name in kinds} <= {*routes.PACKED}


@pytest.mark.parametrize("name", NAMES)
def test_routes_agree_to_second_order(name, route):
    found = []
    for packed in (False, True):
        route(packed)
        call, module = call_of(name)
        given = [features()]
        found.append(results(partial(call, given=GIVEN), given, torch.float64, module=module))
    assert distances(*found)[0] < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_routes_agree_in_forward_mode_and_over_batches(name, route):
    call, _ = call_of(name)
    x, tangent = features(), features().flip(0)
    tangents, mapped = [], []
    for packed in (False, True):
        route(packed)
        tangents += [torch.func.jvp(lambda x: call(x, GIVEN), (x,), (tangent,))[1]]
        mapped += [torch.func.vmap(lambda x: call(x, GIVEN))(torch.stack([x, tangent]))]
        hessian = torch.func.jvp(torch.func.grad(lambda x: call(x, GIVEN).cos().sum()), (x,), (x,))
        tangents += hessian
    for one, other in zip(tangents[:3], tangents[3:], strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(*mapped)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", [n for n in NAMES if "ptr" not in n and "segment" not in n])
@pytest.mark.parametrize("wrong", [-1, NODES, 2**40])
def test_indices_out_of_range_are_refused_by_name(name, packed, wrong, route):
    """Indices out of range are refused by name, whatever the number of columns."""
    route(packed)
    call, _ = call_of(name)
    given = [index.clone() for index in GIVEN]
    given[0][5] = given[2][1, 5] = wrong
    message = rf"index: .*expected indices from 0 to .*got {wrong} at"
    for columns in (1, 9, 64) if name in FUNCTIONS else (9,):
        with pytest.raises(IndexError, match=message):
            call(features().repeat(1, 8)[:, :columns], given)


@pytest.mark.parametrize("name", ["scatter", "GATConv", "NNConv", "SAGEConv"])
def test_small_graphs_are_not_packed_and_large_ones_are(name, monkeypatch):
    """The choice depends on sizes alone, so that results do not depend on earlier calls."""
    made = []
    keep = layer_edges._graph._restored
    monkeypatch.setattr(
        layer_edges._graph, "_restored", lambda *given: made.append(given) or keep(*given)
    )
    call, module = call_of(name)
    x, given = features().to(torch.float32), [index.clone() for index in GIVEN]
    module.float()
    small = [call(x, given) for _ in range(3)]
    assert not made
    assert torch.equal(small[0], small[2])
    for operator in routes.PACKED:
        monkeypatch.setitem(routes.PACKED, operator, EDGES)
    call(x, given)
    assert made


def laid_out(name, dim, package, src):
    if name == "softmax":
        return package.softmax(src, GROUPS, None, NODES, dim)
    if name.startswith("segment"):
        return package.segment(src, PTR, *name.split()[1:])
    return package.scatter(src, GROUPS, dim, NODES, name)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "mul", "softmax", "segment", "segment max"])
def test_results_are_laid_out_as_the_originals(name, rank, packed, route):
    route(packed)
    for dim in range(rank if not name.startswith("segment") else 1):
        shape = [3, 4, 5, 6][:rank]
        shape[dim] = EDGES
        src = torch.randn(shape)
        call = partial(laid_out, name, dim)
        found, truth = call(nn, src), call(pyg.utils, src)
        assert (found.shape, found.stride()) == (truth.shape, truth.stride())
        assert found.is_contiguous()
        turned = src.movedim(0, -1).contiguous().movedim(-1, 0)
        assert call(nn, turned).is_contiguous() >= call(pyg.utils, turned).is_contiguous()
        torch.testing.assert_close(call(nn, turned), truth)


ADJACENCY = torch.tensor([[1.0, 0, 1, 0], [0, 1, 1, 1]])
FORMS = {
    "coo": lambda dense: dense.to_sparse().coalesce(),
    "csr": lambda dense: dense.to_sparse_csr(),
    "csc": lambda dense: dense.to_sparse_csc(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*GRAPH_LAYERS, "NNConv"])
def test_a_sparse_adjacency_has_the_sizes(name, form, packed, route):
    """Two destinations and four sources, whatever `size` and the features say."""
    route(packed)
    arguments = (3, 5, torch.nn.Linear(2, 15)) if name == "NNConv" else (3, 5)
    generator = torch.Generator().manual_seed(2)
    sources, two, four = (torch.randn(n, 3, generator=generator) for n in (4, 2, 4))
    network = {"edge_attr": torch.randn(5, 2, generator=generator)} if name == "NNConv" else {}
    sized = name in ("GATConv", "NNConv")
    adjacency = FORMS[form](ADJACENCY)
    # the original has no CSC here, and its edge order differs
    for_original = ADJACENCY.to_sparse_csr() if form == "csc" else adjacency
    reorder = ADJACENCY.t().nonzero()[:, [1, 0]] if form == "csc" else ADJACENCY.nonzero()
    order = [ADJACENCY.nonzero().tolist().index(entry) for entry in reorder.tolist()]
    features_of = {key: value[order] for key, value in network.items()}
    for loops in (False, True) if name.startswith("GAT") else (None,):
        options = {} if loops is None else {"add_self_loops": loops}
        original, drop_in = pair(pyg.nn, nn, name, *arguments, **options)
        drop_in.load_state_dict(original.state_dict())
        for size in (None, (4, 2), (4, 4)) if sized else (None,):
            given = {} if size is None else {"size": size}
            for second in (None, two) if sized else (two,):
                truth = original((sources, second), for_original, **network, **given)
                found = drop_in((sources, second), adjacency, **features_of, **given)
                assert found.shape == (2, 5)
                torch.testing.assert_close(found, truth)
            for x in (sources, (sources, four), (two, two), (two, None))[: 4 if sized else 3]:
                with pytest.raises(ValueError, match="expected size"):
                    original(x, for_original, **network, **given)
                with pytest.raises(ValueError, match=r"edge_index: expected \d nodes in place"):
                    drop_in(x, adjacency, **features_of, **given)


@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_attention_is_kept_as_by_the_original(name):
    """No attention weights remain after a call, and an explainer of attention is refused."""
    original, drop_in = pair(pyg.nn, nn, name, 9, 4)
    for layer in (original, drop_in):
        layer(features()[:NODES].float(), INDEX)
    missing = object()
    assert getattr(drop_in, "_alpha", missing) is getattr(original, "_alpha", missing)
    explainer = pyg.explain.AttentionExplainer()
    with pytest.raises(ValueError, match="attention"):
        explainer(drop_in, features()[:NODES].float(), INDEX, target=torch.zeros(NODES))
