"""Indices of subclasses of Tensor are converted to plain tensors of the same memory.

Each test runs over the same table of calls, so this is one file.
"""

import functools
import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import pyops.torch as pt  # noqa: E402
from pyops._call.operator import OPERATORS  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._dimenet import swish  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

from ..examples import Example  # noqa: E402
from ..layer_cases import PNA  # noqa: E402


class Plain(torch.Tensor):
    """Subclass for `as_subclass`."""


class Refusing(torch.Tensor):
    """Subclass that refuses every operation of torch."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        raise AssertionError(f"{function} was called with a subclass")


def of_geometric(name):
    def make(index):
        return getattr(pytest.importorskip("torch_geometric"), name)(index)

    return make


KINDS = {
    "Parameter": lambda index: torch.nn.Parameter(index, requires_grad=False),
    "as_subclass": lambda index: index.as_subclass(Plain),
    "torch_function": lambda index: index.as_subclass(Refusing),
    "Index": of_geometric("Index"),
    "EdgeIndex": of_geometric("EdgeIndex"),
}
NODES, EDGES = 6, 8
INDEX = torch.tensor([[0, 5, 2, 3, 3, 1, 4, 0], [1, 1, 0, 5, 2, 2, 5, 4]])
PTR = torch.tensor([0, 2, 2, 3, 5, 7, EDGES])
FEATURES = torch.linspace(-1, 1, EDGES * 3, dtype=torch.float64).view(EDGES, 3)


@functools.cache
def layer(name, *sizes, **options):
    torch.manual_seed(0)
    return getattr(nn, name)(*sizes, **options).double().requires_grad_(False)


def of_edges(name, **options):
    made = layer(name, 4, 3, **options)
    return lambda x, index: made(x[:NODES, :4], index)


def isomorphism(x, index):
    made = GIN.to(x.dtype)
    return made(x[:NODES, :4], index)


def by_network(**options):
    made = layer("NNConv", 4, 3, torch.nn.Linear(3, 12), **options)
    return lambda x, index: made(x[:NODES, :4], index, FEATURES)


def interaction(x, kj, ji):
    return layer("InteractionPPBlock", 16, 4, 4, 2, 3, 1, 1, swish)(
        x.repeat(1, 2), x[:, :3], x[:, :6], kj, ji
    )


def embedding(x, numbers, i, j):
    return layer("EmbeddingBlock", 3, 4, swish)(numbers, x[:, :3], i, j)


def molecules(x, numbers, batch):
    options = {"num_blocks": 1, "num_spherical": 2, "num_radial": 2, "int_emb_size": 4}
    options |= {"basis_emb_size": 2, "out_emb_channels": 4, "max_num_neighbors": None}
    options["output_initializer"] = "glorot_orthogonal"
    return layer("DimeNetPlusPlus", 8, 2, **options)(numbers, 2 * x[:, :3], batch)


def filtered(x, numbers, batch):
    made = layer("SchNet", 8, 4, 1, 3, max_num_neighbors=None)
    return made(numbers, 2 * x[:, :3], batch)


def filters(x, index):
    return layer("InteractionBlock", 4, 3, 5, 2.0)(x[:NODES, :4], index, FEATURES[:, 0], FEATURES)


def integral(x, index, splits):
    made = layer("IntegralTransform", channel_mlp_layers=(4, 5, 3))
    neighbours = {"neighbors_index": index, "neighbors_row_splits": splits}
    return made(x[:, :2], neighbours, x[:NODES, 2:4], x[:, 4:7])


torch.manual_seed(0)
GIN = nn.GINConv(torch.nn.Linear(4, 3)).double().requires_grad_(False)
EDGE = nn.EdgeConv(torch.nn.Linear(8, 3)).double().requires_grad_(False)
CONTINUOUS = nn.CFConv(4, 3, 5, torch.nn.Linear(3, 5), 2.0).double().requires_grad_(False)
NEIGHBOURHOODS = nn.PNAConv(4, 3, *PNA).double().requires_grad_(False)
PAIR = INDEX[0], PTR[:-1].clamp(max=7)
CALLS = {
    **{
        f"scatter {reduce}": (
            lambda x, index, reduce=reduce: nn.scatter(x, index, 0, NODES, reduce),
            [INDEX[1]],
        )
        for reduce in ("sum", "mean", "max", "mul")
    },
    "scatter, groups counted": (lambda x, index: nn.scatter(x, index), [INDEX[1]]),
    "softmax": (lambda x, index: nn.softmax(x, index, num_nodes=NODES), [INDEX[1]]),
    "softmax ptr": (lambda x, ptr: nn.softmax(x, None, ptr), [PTR]),
    **{
        f"segment {reduce}": (lambda x, ptr, reduce=reduce: nn.segment(x, ptr, reduce), [PTR])
        for reduce in ("sum", "mean", "max")
    },
    **{name: (of_edges(name), [INDEX]) for name in ("GATConv", "GATv2Conv", "TransformerConv")},
    **{name: (of_edges(name), [INDEX]) for name in ("GCNConv", "SAGEConv", "GraphConv")},
    "GINConv": (isomorphism, [INDEX]),
    "EdgeConv": (lambda x, index: EDGE(x[:NODES, :4], index), [INDEX]),
    "MeshGraphNetProcessor": (
        lambda x, index: layer("MeshGraphNetProcessor", 2, 4, 4)(
            x[:NODES, :4], x[:EDGES, :4], index
        ),
        [INDEX],
    ),
    "PNAConv": (lambda x, index: NEIGHBOURHOODS(x[:NODES, :4], index), [INDEX]),
    **{
        name: (lambda x, index, name=name: layer(name, 4, 3)(x[:NODES, :4], index), [INDEX])
        for name in ("CuGraphSAGEConv", "CuGraphGATConv")
    },
    **{
        name: (
            lambda x, index, name=name: layer(name, 4, 3, 3)(
                x[:NODES, :4], index, torch.arange(EDGES) % 3
            ),
            [INDEX],
        )
        for name in ("RGCNConv", "CuGraphRGCNConv")
    },
    "CFConv": (
        lambda x, index: CONTINUOUS(x[:NODES, :4], index, FEATURES[:, 0], FEATURES),
        [INDEX],
    ),
    "RGCNConv, relations": (
        lambda x, types: layer("RGCNConv", 4, 3, 6)(x[:NODES, :4], INDEX, types),
        [INDEX[0]],
    ),
    "GATConv, no loops": (of_edges("GATConv", add_self_loops=False), [INDEX]),
    "TransformerConv of a maximum": (of_edges("TransformerConv", aggr="max"), [INDEX]),
    "offsets and sources": (
        lambda x, offsets, sources: of_edges("TransformerConv")(x, (offsets, sources)),
        [PTR, INDEX[0]],
    ),
    "NNConv": (by_network(), [INDEX]),
    "NNConv of a maximum": (by_network(aggr="max"), [INDEX]),
    "InteractionPPBlock": (interaction, [INDEX[0], INDEX[1]]),
    "OutputPPBlock": (
        lambda x, i: layer(
            "OutputPPBlock", 3, 4, 4, 2, 1, swish, output_initializer="glorot_orthogonal"
        )(x[:, :4], x[:, :3], i, NODES),
        [INDEX[1]],
    ),
    "EmbeddingBlock": (embedding, [torch.arange(NODES) + 1, INDEX[0], INDEX[1]]),
    "SphericalBasisLayer": (
        lambda x, kj: layer("SphericalBasisLayer", 3, 2)(x[:NODES, 0].abs() + 1, x[:, 1], kj),
        [INDEX[0]],
    ),
    "DimeNetPlusPlus": (molecules, [torch.ones(EDGES).long(), torch.arange(EDGES) // 3]),
    "SchNet": (filtered, [torch.ones(EDGES).long(), torch.arange(EDGES) // 3]),
    "InteractionBlock": (filters, [INDEX]),
    "IntegralTransform": (integral, [INDEX[0], PTR]),
    "Graph": (
        lambda x, src, dst: pt.aggregate(pt.Graph(src, dst, NODES), x[:NODES]),
        [INDEX[0], INDEX[1]],
    ),
    "Graph.from_csc": (
        lambda x, offsets, src, ids: pt.aggregate(
            pt.Graph.from_csc(offsets, src, NODES, ids), x[:NODES], x
        ),
        [PTR, INDEX[0], torch.arange(EDGES).flip(0)],
    ),
    "CSC": (
        lambda x, offsets, src, ids: pt.aggregate(
            CSC(offsets, src, NODES, ef_indices=ids).graph, x[:NODES], x
        ),
        [PTR, INDEX[0], torch.arange(EDGES).flip(0)],
    ),
}
BY_NUMPY = "Graph", "Graph.from_csc", "CSC"
INDEXED = {"edge_index", "index", "ptr", "i", "idx_kj", "idx_ji", "batch", "neighbors"}


def test_every_layer_with_indices_has_a_call():
    for name, found in vars(nn).items():
        called = getattr(found, "forward", found) if inspect.isclass(found) else found
        public = callable(called) and not name.startswith("_")
        if public and INDEXED & {*inspect.signature(called).parameters}:
            assert any(name in call for call in CALLS), name


def results(call, indices):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EDGES, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    y = call(x, *indices)
    assert type(y) is torch.Tensor
    return y.detach(), *torch.autograd.grad((y * y.cos()).sum(), x)


def skip_others(kind, name, index):
    """Skip kinds of indices that the call does not take."""
    if kind == "EdgeIndex" and index.dim() != 2:
        pytest.skip("has two dimensions")
    if kind == "Index" and index.dim() == 2:
        pytest.skip("has one dimension")
    if kind == "torch_function" and name in BY_NUMPY:
        pytest.skip("reads tensors as NumPy does")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_plain_tensors(name, kind, packed, monkeypatch):
    if packed:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)
    call, indices = CALLS[name]
    skip_others(kind, name, indices[0])
    given = [KINDS[kind](index.clone()) for index in indices]
    for found, expected in zip(results(call, given), results(call, indices), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "EdgeIndex"])
@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.indexed])
def test_row_numbers(name, kind):
    case = Example(name)
    (option,) = case.op.signature.indexed
    rows = torch.from_numpy(np.array(case.options[option]))
    expected = case(*case.tensors)
    case.options[option] = KINDS[kind](rows)
    assert torch.equal(case(*case.tensors), expected)
    subclass = [case.tensors[0].as_subclass(Plain), *case.tensors[1:]]
    assert torch.equal(case(*subclass), expected)


def trace(call, given):
    return torch.jit.trace(call, given, check_trace=False)


TRACERS = {
    "trace": trace,
    "trace without gradients": torch.no_grad()(trace),
    "make_fx": lambda call, given: make_fx(call)(*given),
    "make_fx before autograd": lambda call, given: make_fx(call, pre_dispatch=True)(*given),
}


def skip_fx(kind, name, tracer):
    """Skip calls that torch does not record in this mode."""
    if kind == "torch_function" and tracer.startswith("make_fx"):
        pytest.skip("make_fx calls functions of torch with its arguments")
    if name == "scatter, groups counted" and tracer.startswith("make_fx"):
        pytest.skip("the number of groups is an element of the index")


def other(index):
    """Return an index of the same form: shifted, or, if sorted, counted from the end."""
    if index.dim() == 2:
        return torch.stack([index[0], index[1].roll(1)])
    rising = bool((index.diff() >= 0).all())
    return index.max() - index.flip(0) if rising else index.roll(1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*the trace")
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in CALLS if name not in BY_NUMPY])
def test_traced_functions_take_other_indices(name, kind, tracer):
    """Plain tensors are inputs of the recorded function, not constants."""
    call, indices = CALLS[name]
    skip_others(kind, name, indices[0])
    skip_fx(kind, name, tracer)
    x = torch.linspace(-1, 1, EDGES * 8, dtype=torch.float64).view(EDGES, 8).sin()
    others = [other(index) for index in indices]
    assert not torch.equal(call(x, *others), call(x, *indices))
    given = x, *(KINDS[kind](index.clone()) for index in indices)
    traced = TRACERS[tracer](lambda *tensors: call(*tensors), given)
    torch.testing.assert_close(traced(x, *others), call(x, *others), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*the trace")
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "EdgeIndex"])
@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.indexed])
def test_traced_row_numbers(name, kind, tracer):
    skip_fx(kind, name, tracer)
    case = Example(name)
    (option,) = case.op.signature.indexed
    rows = torch.from_numpy(np.array(case.options[option]))

    def call(x, rows):
        case.options[option] = rows
        return case(x, *case.tensors[1:])

    traced = TRACERS[tracer](call, (case.tensors[0], KINDS[kind](rows.clone())))
    none = torch.full_like(rows, -1)
    found = traced(case.tensors[0], none)
    assert not torch.equal(found, call(case.tensors[0], rows))
    torch.testing.assert_close(found, call(case.tensors[0], none))


SIZES = {
    "bipartite": (6, 4),
    "square": (6, 6),
    "larger": (9, 9),
    "sources only": (6, None),
    "destinations only": (None, 4),
    "unknown": (None, None),
}
SIZED = {
    "GATConv": ("GATConv", {}),
    "GATConv, no loops": ("GATConv", {"add_self_loops": False}),
    "GATConv, backwards": ("GATConv", {"add_self_loops": False, "flow": "target_to_source"}),
    "GATv2Conv": ("GATv2Conv", {}),
    "GATv2Conv, no loops": ("GATv2Conv", {"add_self_loops": False}),
    "TransformerConv": ("TransformerConv", {}),
    "NNConv": ("NNConv", {}),
    "SAGEConv": ("SAGEConv", {}),
    "SAGEConv, backwards": ("SAGEConv", {"flow": "target_to_source"}),
    "GraphConv": ("GraphConv", {}),
}
ENDS = {
    "one": lambda x, y: x,
    "sources": lambda x, y: (x, None),
    "pair": lambda x, y: (x, y),
    "equal": lambda x, y: (x, x),
}


def of_sizes(package, name, ends, index, **asked):
    """Return the result of a layer, or None if it refuses."""
    kind, options = SIZED[name]
    torch.manual_seed(0)
    network = (torch.nn.Linear(3, 12),) if kind == "NNConv" else ()
    layer = getattr(package, kind)((4, 4), 3, *network, **options).double()
    x = torch.linspace(-1, 1, 6 * 4, dtype=torch.float64).view(6, 4)
    features = (FEATURES,) if kind == "NNConv" else ()
    try:
        return layer(ENDS[ends](x, x[:4].sin()), index, *features, **asked)
    except (ValueError, AssertionError, AttributeError, TypeError) as error:
        if package is nn and f"pyops.torch.nn.{kind}: " not in str(error):
            raise
        return None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SIZED)
def test_sizes_of_an_edge_index(name, size, ends, packed, monkeypatch):
    """Known sizes are used, as in PyTorch Geometric."""
    geometric = pytest.importorskip("torch_geometric")
    if "backwards" in name and ends == "pair":
        pytest.skip("takes as many sources as destinations")
    if packed:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)
    index = geometric.EdgeIndex(INDEX % 4, sparse_size=SIZES[size])
    found, expected = (of_sizes(p, name, ends, index) for p in (nn, geometric.nn))
    if expected is None:
        assert found is None
    else:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [n for n in SIZED if "GAT" in n and "back" not in n])
def test_weights_come_with_an_edge_index(name, size):
    geometric = pytest.importorskip("torch_geometric")
    index = geometric.EdgeIndex(INDEX % 4, sparse_size=SIZES[size])
    asked = {"return_attention_weights": True}
    found, expected = (of_sizes(p, name, "pair", index, **asked) for p in (nn, geometric.nn))
    if expected is None:
        assert found is None
        return
    (_, (found, weights)), (_, (expected, others)) = found, expected
    assert type(found) is type(expected)
    assert found.sparse_size() == expected.sparse_size()
    assert found.as_tensor().equal(expected.as_tensor())
    torch.testing.assert_close(weights, others, rtol=1e-12, atol=1e-12)
