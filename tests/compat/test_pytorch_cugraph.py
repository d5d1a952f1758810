"""Layers of PyTorch Geometric that call pylibcugraphops, against the originals on its stand-in."""

import importlib
import sys

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric")

from torch_geometric.nn.conv.cugraph import CuGraphModule  # noqa: E402

import pyops.torch as pt  # noqa: E402
from pyops.compat import pylibcugraphops  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC, HeteroCSC  # noqa: E402
from pyops.torch import nn  # noqa: E402

from ..frameworks.torch.nn.comparison import (  # noqa: E402
    EDGES,
    NODES,
    check_alike,
    check_same,
    draw,
    edges,
)

ORIGINALS = "torch_geometric.nn.conv.cugraph"
RELATIONS = 4
CASES = {
    "CuGraphSAGEConv": [
        {},
        {"aggr": "sum", "normalize": True},
        {"aggr": "max", "root_weight": False},
        {"aggr": "min", "project": True, "bias": False},
    ],
    "CuGraphGATConv": [
        {},
        {"heads": 3, "negative_slope": 0.1},
        {"heads": 2, "concat": False, "bias": False},
    ],
    "CuGraphRGCNConv": [
        {},
        {"num_bases": 2, "aggr": "sum"},
        {"root_weight": False, "bias": False, "aggr": "add"},
    ],
}
ALL = [(name, options) for name, several in CASES.items() for options in several]


class OnHost(CuGraphModule):
    """The graphs of the originals, without the refusal of tensors on the CPU."""

    def get_cugraph(self, edge_index, max_num_neighbors=None):
        ordered, _ = edge_index.sort_by("col")
        (colptr, row), _ = ordered.get_csc()
        return CSC(colptr, row, edge_index.get_sparse_size(0))

    def get_typed_cugraph(self, edge_index, edge_type, num_edge_types, max_num_neighbors=None):
        ordered, order = edge_index.sort_by("col")
        (colptr, row), _ = ordered.get_csc()
        types = edge_type if order is None else edge_type[order]
        return HeteroCSC(colptr, row, types.int(), edge_index.get_sparse_size(0), num_edge_types)


@pytest.fixture(scope="module")
def originals():
    """Return the classes of PyTorch Geometric as they are where pylibcugraphops is installed."""
    names = [f"{ORIGINALS}.{part}" for part in ("base", "sage_conv", "gat_conv", "rgcn_conv")]
    finders, before = [*sys.meta_path], {*sys.modules}
    pylibcugraphops.install()
    modules = [importlib.reload(sys.modules[name]) for name in names]
    for module in modules[1:]:
        kind = getattr(module, f"CuGraph{module.__name__.split('.')[-1][:-5].upper()}Conv")
        kind.get_cugraph, kind.get_typed_cugraph = OnHost.get_cugraph, OnHost.get_typed_cugraph
    yield {name: getattr(m, name) for name in CASES for m in modules[1:] if hasattr(m, name)}
    sys.meta_path[:] = finders
    for name in {*sys.modules} - before:
        if name.partition(".")[0] == "pylibcugraphops":
            del sys.modules[name]
    for name in names:
        importlib.reload(sys.modules[name])


def arguments(name, num_dst=NODES, count=EDGES):
    """Return features and edges; of fewer destinations, these are the first of the nodes."""
    index = pyg.EdgeIndex(edges(NODES, num_dst, count), sparse_size=(NODES, num_dst))
    if name == "CuGraphRGCNConv":
        return [draw(NODES, 6), index, torch.randint(RELATIONS, (count,))]
    return [draw(NODES, 6), index, *([None] if name == "CuGraphGATConv" else [])]


def made(kind, name, **options):
    sizes = (6, 4, RELATIONS) if name == "CuGraphRGCNConv" else (6, 4)
    torch.manual_seed(1)
    return kind(*sizes, **options)


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
def test_same(originals, name, options):
    """Results, all derivatives, states, initial values and texts are those of the originals."""
    torch.manual_seed(0)
    original, drop_in = (made(k, name, **options) for k in (originals[name], getattr(nn, name)))
    check_alike(original, drop_in)
    for key, value in original.state_dict().items():
        assert torch.equal(value, drop_in.state_dict()[key]), key
    for num_dst, count in ((NODES, EDGES), (12, EDGES), (12, 0)):
        check_same(original, drop_in, arguments(name, num_dst, count), single=count > 0)


@pytest.mark.parametrize("name", CASES)
def test_convert(originals, name):
    """A layer in a model is swapped, with its parameters and hooks."""
    torch.manual_seed(0)
    original = made(originals[name], name).double()
    model = torch.nn.ModuleDict({"layer": original, "other": made(originals[name], name)})
    model["other"].forward = lambda *_: None
    called = []
    original.register_forward_hook(lambda *_: called.append(1))
    given = arguments(name, 12)
    right = original(*given)
    report = nn.convert(model)
    assert report.swapped == {"layer": name}
    assert report.left == {"other": f"{name}: its forward was replaced"}
    assert type(model["layer"]) is getattr(nn, name)
    assert repr(model["layer"]) == repr(original)
    torch.testing.assert_close(model["layer"](*given), right, rtol=1e-13, atol=1e-13)
    assert called == [1, 1]
    assert [*model["layer"].parameters()] == [*original.parameters()]
    with pytest.raises(ValueError, match="model: expected a module that contains layers"):
        nn.convert(original)


@pytest.mark.parametrize("name", CASES)
def test_forms_of_edges(name):
    """Tensors, pairs of offsets and sources, and graphs in place of an `EdgeIndex`."""
    torch.manual_seed(0)
    layer = made(getattr(nn, name), name).double()
    x, index, *rest = arguments(name, 12)
    index, order = index.sort_by("col")
    if name == "CuGraphRGCNConv":
        rest = [rest[0][order]]
    right = layer(x, index, *rest)
    assert right.shape == (12, 4)
    src, dst = index.as_tensor()
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(dst, minlength=12)])
    for given in (offsets.cumsum(0), src), pt.Graph(src, dst, NODES, 12):
        torch.testing.assert_close(layer(x, given, *rest), right, rtol=1e-13, atol=1e-13)
    every = layer(x, index.as_tensor(), *rest)  # all nodes are destinations
    assert every.shape == (NODES, 4)
    torch.testing.assert_close(every[:12], right, rtol=1e-13, atol=1e-13)


REFUSALS = [
    ("CuGraphSAGEConv", {"aggr": "mul"}, None, ValueError, "aggr: expected one of mean, sum"),
    ("CuGraphRGCNConv", {"aggr": "max"}, None, ValueError, "aggr: expected one of mean, add, sum"),
    ("CuGraphGATConv", {}, {"edge_attr": torch.ones(EDGES, 2)}, ValueError, "edge_attr: expected"),
    ("CuGraphGATConv", {}, {"x": (draw(3, 6),) * 2}, TypeError, "x: expected a tensor, got tuple"),
    ("CuGraphSAGEConv", {}, {"x": torch.ones(NODES, 6).int()}, TypeError, "x: expected floating"),
    ("CuGraphSAGEConv", {}, {"x": draw(NODES, 5)}, ValueError, "x: expected .* columns"),
    ("CuGraphRGCNConv", {}, {"x": draw(NODES, 5)}, ValueError, "x: expected 6 columns"),
    ("CuGraphSAGEConv", {}, {"x": draw(NODES - 1, 6)}, ValueError, "edge_index: expected 29 nodes"),
    ("CuGraphRGCNConv", {}, {"edge_type": torch.full((EDGES,), 9)}, IndexError, "edge_type: exp"),
    ("CuGraphSAGEConv", {}, {"max_num_neighbors": -1}, ValueError, "max_num_neighbors: expected"),
]


@pytest.mark.parametrize(
    ("name", "options", "changed", "kind", "text"),
    REFUSALS,
    ids=[f"{r[0]} {r[-1]}" for r in REFUSALS],
)
def test_refusals(name, options, changed, kind, text):
    x, index, *rest = arguments(name)
    given = {"x": x, "edge_index": index}
    if name == "CuGraphRGCNConv":
        given["edge_type"] = rest[0]

    def call():
        made(getattr(nn, name), name, **options).double()(**(given | (changed or {})))

    with pytest.raises(kind, match=f"{name}: {text}"):
        call()
