"""The blocks of MeshGraphNet against plain torch.

PhysicsNeMo is too large to install for tests, so its blocks are written out here. Those of 2.2.2
itself had the same states, results and gradients. One module, as all tests compare with these.
"""

import copy
import itertools
import types

import pytest

torch = pytest.importorskip("torch")
HeteroData = pytest.importorskip("torch_geometric.data").HeteroData

import pyops.torch as pt  # noqa: E402
from pyops.torch import nn  # noqa: E402

from .comparison import EDGES, NODES, check_same, draw, edges  # noqa: E402
from .test_edge_mlp_layers import _seed as _seed  # noqa: E402
from .test_edge_mlp_layers import calls as calls  # noqa: E402
from .test_edge_mlp_layers import network  # noqa: E402


class PlainMLP(torch.nn.Module):
    """Network of PhysicsNeMo's blocks."""

    def __init__(self, inputs, outputs, hidden, layers, activation, norm):
        super().__init__()
        made = network(inputs, *[hidden] * layers, outputs, activation=lambda: activation)
        self.model = made if norm is None else made.append(torch.nn.LayerNorm(outputs))

    def forward(self, x):
        return self.model(x)


class PlainSum(torch.nn.Module):
    """The same with three first weights."""

    def __init__(self, edge, node, outputs, hidden, layers, activation, norm):
        super().__init__()
        whole = PlainMLP(edge + 2 * node, outputs, hidden, layers, activation, norm)
        parts = whole.model[0].weight.detach().split([edge, node, node], 1)
        self.lin_efeat, self.lin_src, self.lin_dst = map(torch.nn.Parameter, parts)
        self.bias = whole.model[0].bias
        self.model = torch.nn.Sequential(*[*whole.model][1:])

    def forward(self, x):
        weight = torch.cat([self.lin_efeat, self.lin_src, self.lin_dst], 1)
        return self.model(torch.nn.functional.linear(x, weight, self.bias))


class PlainEdgeBlock(torch.nn.Module):
    def __init__(self, node, edge, out, hidden, layers, activation, norm="LayerNorm", trick=False):
        super().__init__()
        more = out, hidden, layers, activation, norm
        self.edge_mlp = PlainSum(edge, node, *more) if trick else PlainMLP(edge + 2 * node, *more)

    def forward(self, efeat, nfeat, index):
        left, right = nfeat if isinstance(nfeat, tuple) else (nfeat, nfeat)
        joined = torch.cat([efeat, left[index[0]], right[index[1]]], 1)
        return efeat + self.edge_mlp(joined), nfeat


class PlainNodeBlock(torch.nn.Module):
    def __init__(self, aggr, node, edge, out, hidden, layers, activation, norm="LayerNorm"):
        super().__init__()
        self.aggregation = aggr
        self.node_mlp = PlainMLP(node + edge, out, hidden, layers, activation, norm)

    def forward(self, efeat, nfeat, index):
        sums = efeat.new_zeros(len(nfeat), efeat.shape[1]).index_add(0, index[1], efeat)
        if self.aggregation == "mean":
            sums = sums / torch.bincount(index[1], minlength=len(nfeat)).clamp(min=1)[:, None]
        return efeat, nfeat + self.node_mlp(torch.cat([sums, nfeat], 1))


class PlainProcessor(torch.nn.Module):
    def __init__(self, size, node, edge, node_layers, edge_layers, aggr, activation, trick):
        super().__init__()
        edges = [
            PlainEdgeBlock(node, edge, edge, edge, edge_layers, activation, trick=trick)
            for _ in range(size)
        ]
        nodes = [
            PlainNodeBlock(aggr, node, edge, edge, edge, node_layers, activation)
            for _ in range(size)
        ]
        pairs = zip(edges, nodes, strict=True)
        self.processor_layers = torch.nn.ModuleList(block for pair in pairs for block in pair)

    def forward(self, nodes, edge, index):
        for layer in self.processor_layers:
            edge, nodes = layer(edge, nodes, index)
        return nodes


def blocks(plain, own):
    """Return modules with the same parameters, whose names agree."""
    made = []
    for make in plain, own:
        torch.manual_seed(1)
        made.append(make())
    states = [{k: tuple(v.shape) for k, v in m.state_dict().items()} for m in made]
    assert [*states[0].items()] == [*states[1].items()]
    assert all(map(torch.equal, made[0].parameters(), made[1].parameters()))
    made[0].load_state_dict(made[1].state_dict())
    return made


ACTIVATIONS = [torch.nn.SiLU(), torch.nn.ReLU(), torch.nn.GELU(), torch.nn.Tanh()]
OPTIONS = list(itertools.product(ACTIVATIONS[:1], [1, 3], ["LayerNorm", None], [False, True]))


@pytest.mark.parametrize(
    ("activation", "layers", "norm", "trick"),
    OPTIONS + [(a, 3, "LayerNorm", True) for a in [*ACTIVATIONS[1:], torch.nn.ELU()]],
    ids=str,
)
def test_edge_block(activation, layers, norm, trick, calls):
    sizes = 4, 3, 3, 6, layers, activation, norm, trick
    plain, own = blocks(lambda: PlainEdgeBlock(*sizes), lambda: nn.MeshEdgeBlock(*sizes))
    check_same(plain, own, [draw(EDGES, 3), draw(NODES, 4), edges()])
    both = draw(20, 4), draw(30, 4)
    check_same(plain, own, [draw(EDGES, 3), both, edges(20, 30)], single=False)
    assert {*calls} == (set() if isinstance(activation, torch.nn.ELU) else {"edge_mlp"})


@pytest.mark.parametrize("trick", [False, True])
def test_hooks_of_edge_networks(trick):
    """Hooks see the results of the network, without the features of the edges."""
    sizes = 4, 3, 3, 6, 1, torch.nn.SiLU(), "LayerNorm", trick
    pair = blocks(lambda: PlainEdgeBlock(*sizes), lambda: nn.MeshEdgeBlock(*sizes))
    for block in pair:
        block.edge_mlp.register_forward_hook(lambda *of: 3 * of[2])
    check_same(*pair, [draw(EDGES, 3), draw(NODES, 4), edges()])


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("norm", ["LayerNorm", None])
def test_node_block(aggr, norm):
    sizes = aggr, 4, 3, 4, 6, 2, torch.nn.SiLU(), norm
    plain, own = blocks(lambda: PlainNodeBlock(*sizes), lambda: nn.MeshNodeBlock(*sizes))
    check_same(plain, own, [draw(EDGES, 3), draw(NODES, 4), edges()])


@pytest.mark.parametrize("trick", [False, True])
@pytest.mark.parametrize("segments", [0, 2])
def test_processor(trick, segments):
    activation = torch.nn.SiLU()
    plain, own = blocks(
        lambda: PlainProcessor(2, 4, 4, 1, 2, "sum", activation, trick),
        lambda: nn.MeshGraphNetProcessor(
            2, 4, 4, 1, 2, "sum", "LayerNorm", activation, trick, segments, bool(segments)
        ),
    )
    given = [draw(NODES, 4), draw(EDGES, 4), edges()]
    check_same(plain, own, given, order=1 if segments else 2, single=False)


@pytest.mark.parametrize(("nodes", "count"), [(NODES, 0), (0, 0), (1, 1)])
def test_empty_meshes(nodes, count):
    activation, index = torch.nn.ReLU(), torch.zeros(2, count, dtype=torch.long)
    plain, own = blocks(
        lambda: PlainProcessor(2, 4, 4, 2, 2, "mean", activation, False),
        lambda: nn.MeshGraphNetProcessor(2, 4, 4, aggregation="mean"),
    )
    check_same(plain, own, [draw(nodes, 4), draw(count, 4), index], single=False)


def test_derivatives_of_meshes():
    layer = nn.MeshGraphNetProcessor(1, 2, 2, 1, 1, activation_fn=torch.nn.Tanh()).double()
    index, names = edges(3, 3, 5), [name for name, _ in layer.named_parameters()]

    def call(nodes, edge, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, given, (nodes, edge, index))

    leaves = [draw(3, 2), draw(5, 2), *layer.parameters()]
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves)


def test_meshes_of_any_size():
    """One graph for all sizes, which torch knows by name only."""
    block = nn.MeshEdgeBlock(input_dim_nodes=8, input_dim_edges=8, output_dim=8, hidden_dim=16)
    compiled = torch.compile(block, dynamic=True, fullgraph=True, backend="aot_eager")
    for nodes, count in (10, 40), (12, 50):
        index = torch.randint(nodes, (2, count))
        given = torch.randn(count, 8), torch.randn(nodes, 8), pt.Graph(*index, nodes, nodes)
        torch.testing.assert_close(compiled(*given), block(*given))


def test_graphs_of_meshes():
    layer = nn.MeshGraphNetProcessor(2, 4, 4)
    index, nodes, edge = edges(), draw(NODES, 4).float(), draw(EDGES, 4).float()
    expected = layer(nodes, edge, index)
    for graph in (
        pt.Graph(index[0], index[1], NODES, NODES),
        types.SimpleNamespace(edge_index=index),
    ):
        torch.testing.assert_close(layer(nodes, edge, graph), expected)


def test_text():
    """That of the originals, whose layers have these names."""
    edge = nn.MeshEdgeBlock(4, 3, 3, 6)
    assert repr(edge).splitlines()[:4] == [
        "MeshEdgeBlock(",
        "  (edge_mlp): MeshGraphEdgeMLPConcat(",
        "    (model): Sequential(",
        "      (0): Linear(in_features=11, out_features=6, bias=True)",
    ]
    assert "(edge_mlp): MeshGraphEdgeMLPSum(" in repr(nn.MeshEdgeBlock(4, do_concat_trick=True))
    assert "(node_mlp): MeshGraphMLP(" in repr(nn.MeshNodeBlock("sum", 4, 3, 3, 6))


X, F, INDEX = torch.zeros(6, 4), torch.zeros(9, 3), torch.zeros(2, 9, dtype=torch.long)
EDGE, NODE = (lambda *a: nn.MeshEdgeBlock(4, 3, 3, 6)(*a)), nn.MeshNodeBlock("sum", 4, 3, 4, 6)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: EDGE(F, X[:, :3], INDEX), ValueError, r"MeshEdgeBlock: nfeat: expected shape \(r"),
        (lambda: EDGE(F[:, :2], X, INDEX), ValueError, r"MeshEdgeBlock: efeat: expected shape \(9"),
        (lambda: EDGE(F[:8], X, INDEX), ValueError, "MeshEdgeBlock: efeat: expected 9 rows, one"),
        (lambda: EDGE(F, None, INDEX), TypeError, r"MeshEdgeBlock: nfeat: expected a torch\.Tens"),
        (lambda: EDGE(F, X, None), TypeError, "MeshEdgeBlock: edge_index: expected a tensor"),
        (lambda: NODE(F[:8], X, INDEX), ValueError, "MeshNodeBlock: efeat: expected 9 rows, one"),
        (lambda: NODE(F, (X, X), INDEX), TypeError, r"MeshNodeBlock: nfeat: expected a torch\."),
        (lambda: NODE(F, X, INDEX + 6), IndexError, "MeshNodeBlock: edge_index: "),
        (lambda: nn.MeshNodeBlock("max"), ValueError, "MeshNodeBlock: aggregation: expected 'sum'"),
        (
            lambda: nn.MeshEdgeBlock(norm_type="BatchNorm1d"),
            ValueError,
            "MeshEdgeBlock: norm_type: expected one of",
        ),
        (
            lambda: nn.MeshEdgeBlock(activation_fn=torch.nn.ReLU(), recompute_activation=True),
            ValueError,
            r"MeshEdgeBlock: recompute_activation: expected SiLU, got ReLU\(\)",
        ),
        (
            lambda: nn.MeshEdgeBlock(hidden_layers=0),
            ValueError,
            "MeshEdgeBlock: hidden_layers: expected an integer from 1",
        ),
        (
            lambda: nn.MeshGraphNetProcessor(2, 4, 4, num_processor_checkpoint_segments=3),
            ValueError,
            "MeshGraphNetProcessor: num_processor_checkpoint_segments: expected a divisor of 4",
        ),
    ],
)
def test_refusals_of_meshes(call, kind, message):
    with pytest.raises(kind, match=rf"pyops\.torch\.nn\.{message}"):
        call()


def renamed(module):
    """Give modules the classes' names of PhysicsNeMo, which `convert` knows them by."""
    names = {
        PlainEdgeBlock: "MeshEdgeBlock",
        PlainNodeBlock: "MeshNodeBlock",
        PlainSum: "MeshGraphEdgeMLPSum",
    }
    for block in module.modules():
        of_edges = isinstance(block, PlainEdgeBlock)
        for part in [block, *block._modules.values()] if type(block) in names else []:
            mlp = "MeshGraphEdgeMLPConcat" if of_edges else "MeshGraphMLP"
            name = names.get(type(part), mlp)
            part.__class__ = type(name, (type(part),), {"__module__": "physicsnemo.nn.module"})
    return module


@pytest.mark.parametrize("trick", [False, True])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_convert(trick, aggr, calls):
    """Blocks in a model of PhysicsNeMo are swapped; parameters and hooks remain."""
    model = renamed(PlainProcessor(2, 4, 4, 1, 2, aggr, torch.nn.SiLU(), trick))
    plain = copy.deepcopy(model)
    seen = []
    model.processor_layers[0].register_forward_hook(lambda *_: seen.append("hook"))
    for either in plain, model:
        either.processor_layers[2].edge_mlp.model.register_forward_hook(lambda *of: 3 * of[2])
    before = [*map(id, model.parameters())]
    report = nn.convert(model)
    kinds = ["MeshEdgeBlock", "MeshNodeBlock"] * 2
    assert report.swapped == {f"processor_layers.{i}": kind for i, kind in enumerate(kinds)}
    assert not report.left
    assert [*map(id, model.parameters())] == before
    nodes, features, index = draw(NODES, 4), draw(EDGES, 4), edges()
    check_same(plain, model, [nodes, features, index])
    graph = HeteroData({("node", "to", "node"): {"edge_index": index}})
    assert torch.equal(model.double()(nodes, features, graph), model(nodes, features, index))
    assert seen
    assert "edge_mlp" in calls


def test_convert_leaves_what_it_does_not_know():
    model = renamed(PlainProcessor(2, 4, 4, 1, 2, "sum", torch.nn.SiLU(), False))
    first, second, third, _ = model.processor_layers
    first.edge_mlp = torch.nn.Identity()
    second.node_mlp.forward = lambda x: x
    third.__class__.__module__ = "other"
    report = nn.convert(model)
    assert [*report.swapped] == ["processor_layers.3"]
    assert report.left == {
        "processor_layers.0": "MeshEdgeBlock: edge_mlp: expected MeshGraphEdgeMLPConcat or "
        "MeshGraphEdgeMLPSum with linear layers, got Identity with 0",
        "processor_layers.1": "MeshNodeBlock: its forward was replaced",
    }
    model.processor_layers[3] = second
    del second.node_mlp.forward
    second.aggregation = "max"
    assert "expected sum or mean, got max" in nn.convert(model).left["processor_layers.3"]
    with pytest.raises(ValueError, match="expected a module that contains layers, got a layer"):
        nn.convert(first)
