"""The low-level calls of pylibcugraphops with arrays of a device, against those of the host."""

import numpy as np
import pytest

from pyops.compat import pylibcugraphops
from pyops.compat.pylibcugraphops import dimenet, operators
from pyops.compat.pylibcugraphops.operators import AggOp
from pyops.cuda import _device

from ..test_compat_attention import ACTIVATIONS, DIM, HEADS, WIDTH, call_of, graph_of, in_order
from ..test_compat_attention import problem as attention
from .host import COMPILER
from .platform import Platform, to_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
NODES, EDGES = 9, 40


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    made = Platform()
    monkeypatch.setattr(_device, "found", lambda: made)
    return made


@pytest.fixture
def csc(rng):
    dst = np.sort(rng.integers(0, NODES - 1, EDGES))
    offsets = np.searchsorted(dst, np.arange(NODES + 1))
    return offsets, rng.integers(0, NODES - 1, EDGES), rng.permutation(EDGES)


def compare(function, outs, arguments, platform, **keywords):
    """A call on the host and on the device; results of the first and of the second."""

    def run(move):
        made = [None if o is None else move(np.full(o, np.nan)) for o in outs]
        function(*made, *(move(a) if type(a) is np.ndarray else a for a in arguments), **keywords)
        return made

    expected = run(lambda a: a)
    used = len(platform.streams)
    for got, right in zip(run(to_device), expected, strict=True):
        if right is not None:
            np.testing.assert_allclose(got, right, 1e-11, 1e-12)
    assert len(platform.streams) == used + 1


@pytest.mark.parametrize("op", AggOp)
def test_aggregations(csc, rng, op, platform):
    """Arrays of graphs are on the device, too."""
    graph = pylibcugraphops.make_csc(*map(to_device, csc))
    x, edge = rng.standard_normal((NODES, 5)), rng.standard_normal((EDGES, 3))
    gy, weight = rng.standard_normal((NODES, 8)), rng.uniform(1, 2, EDGES)
    compare(operators.agg_simple_n2n_fwd, [(NODES, 5)], [x, graph, op], platform)
    compare(operators.agg_concat_n2n_e2n_fwd, [(NODES, 13)], [x, edge, graph, 5, 3, op], platform)
    compare(operators.agg_weighted_n2n_fwd, [(NODES, 5)], [x, weight, graph, op], platform)
    if op in (AggOp.Sum, AggOp.Mean):
        both = (NODES, 5), (EDGES, 3)
        compare(operators.agg_simple_n2n_e2n_bwd, both, [gy, graph, op], platform)
        given = [gy[:, :5].copy(), weight, x, graph, op]
        compare(operators.agg_weighted_n2n_bwd, [(NODES, 5), (EDGES,)], given, platform)
    assert graph.on_device.to_host() is graph.graph


@pytest.mark.parametrize("norm_by_dim", [False, True])
@pytest.mark.parametrize(
    ("kind", "activation"),
    [*((kind, name) for kind in ("gat", "gat_v2") for name in ACTIVATIONS), ("simple", "ReLU")],
)
@pytest.mark.parametrize("edges", [False, True])
def test_attention(rng, edges, kind, activation, norm_by_dim, platform):
    _, arrays, gy = attention(rng, kind, edges, np.float64)
    graph = graph_of()
    params = operators.mha_params(HEADS, True, activation, norm_by_dim=norm_by_dim)
    outs = [(4, DIM), (2, HEADS, graph.n_indices)]
    outs += [(graph.n_indices, DIM)] if kind == "gat_v2" else []
    inputs = in_order(kind, arrays)
    call = call_of(kind, edges, "fwd")
    compare(call, outs, [*inputs, graph, params], platform, stream_id=77)
    assert platform.streams == [77]
    left = [None] * (len(outs) - 1)
    workspace = [None] if kind != "simple" else []
    given = [None, gy, *inputs, *left, graph, params, *workspace]
    compare(call_of(kind, edges, "bwd"), [a.shape for a in inputs], given, platform)
    assert WIDTH * HEADS == DIM


def test_refusals(csc, rng):
    graph = pylibcugraphops.make_csc(*csc)
    x = rng.standard_normal((NODES, 5))
    y, there = np.zeros((NODES, 5)), to_device(np.zeros((NODES, 5)))
    call = operators.agg_simple_n2n_fwd
    for arguments, kind, text in (
        ((there, x, graph), TypeError, "input_embedding: expected an array on the device like"),
        ((y, to_device(x), graph), TypeError, "output_embedding: expected an array on the device"),
        ((there[:3], to_device(x), graph), ValueError, r"expected shape \(9, 5\), got \(3, 5\)"),
        ((there, to_device(x.astype("f")), graph), TypeError, "expected float32 like the inputs"),
        ((there, to_device(x.astype("e")), graph), TypeError, "expected float32 or float64, got"),
        ((there, to_device(x), graph, AggOp.Max, y), NotImplementedError, "expected None with"),
    ):
        with pytest.raises(kind, match=f"agg_simple_n2n_fwd: .*{text}"):
            call(*arguments)
    with pytest.raises(TypeError, match="stream: expected an integer"):
        call(there, to_device(x), graph, stream_id="first")


def test_bases(rng, platform):
    x, w = rng.uniform(0.1, 1.1, (EDGES, 1)), np.pi * np.arange(1.0, 7)
    rbf, sbf = rng.standard_normal((EDGES, 6)), rng.standard_normal((EDGES, 42))
    compare(dimenet.radial_basis_fwd, [(EDGES, 6), (EDGES, 42)], [x, w], platform)
    compare(dimenet.radial_basis_bwd, [(EDGES, 1), (6,)], [rbf, sbf, x, w], platform)


def test_edge_to_edge(rng, platform):
    src, dst = rng.integers(0, NODES, (2, EDGES))
    order = np.argsort(dst, kind="stable")
    offsets = np.searchsorted(dst[order], np.arange(NODES + 1))
    shapes = (EDGES, 3), (EDGES, 42), (EDGES, 8), (50, 4)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    given = [*arrays, np.stack([src, dst]), offsets, order]
    compare(dimenet.agg_edge_to_edge_fwd, [(EDGES, 8)], given, platform, cuda_stream=5)
    assert platform.streams == [5]
