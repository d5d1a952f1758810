"""Networks of the entries of a graph, and their blocks of parameters."""

from itertools import pairwise

import numpy as np
import pytest

import pyops
from pyops import blocks

from ..reference.activations import EXACT
from ..support.graphs import drawn, shared

SRC, DST, EDGE, H, OUT = 3, 2, 4, 5, 6
GRAPH = drawn(20, 15, 60)


def layers(rng, depth, norm, kind=float):
    """Return weights, biases, scale and shift."""
    sizes = [SRC + DST + EDGE, *[H] * depth, OUT]
    weights = [rng.standard_normal(shape[::-1]).astype(kind) for shape in pairwise(sizes)]
    biases = [rng.standard_normal(size).astype(kind) for size in sizes[1:]]
    ends = (
        [rng.standard_normal(OUT).astype(kind) for _ in range(2)] if norm == "layer" else [None] * 2
    )
    return weights, biases, *ends


def features(rng):
    rows = (GRAPH.num_src, SRC), (GRAPH.num_dst, DST), (GRAPH.num_edges, EDGE)
    return [rng.standard_normal(shape) for shape in rows]


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("activation", EXACT)
def test_what_it_computes(rng, activation, depth, norm):
    """Linear layers with activations between them, of joined features; then the sums."""
    weights, biases, scale, shift = layers(rng, depth, norm)
    params = blocks.pack_edge_network(weights, biases, scale, shift, src_width=SRC, dst_width=DST)
    x, z, f = features(rng)
    options = {"hidden": H, "depth": depth, "activation": activation, "norm": norm}
    h = np.concatenate([x[GRAPH.src], z[GRAPH.dst], f], axis=1)
    for n, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = h @ weight.T + bias
        h = EXACT[activation](h)[0] if n < depth else h
    if norm == "layer":
        h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
        h = h * scale + shift
    y = pyops.edge_mlp(GRAPH, x, params, z, f, **options)
    np.testing.assert_allclose(y, h, rtol=1e-11, atol=1e-11)
    for reduce in "sum", "mean":
        found = pyops.edge_network(GRAPH, x, params, z, f, reduce=reduce, **options)
        expected = pyops.aggregate(GRAPH, edge=y, reduce=reduce)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_only_entries_count():
    """A bias that overflows without the features of an entry has no effect on gradients."""
    graph = pyops.Graph([0], [0], 1, 1)
    params = np.array([1, 1e30, 1e10, 0, 0, 1, 1, 1, 0, 0], np.float32)
    x, gy = np.full((1, 1), -1e30, np.float32), np.array([[1, 2]], np.float32)
    options = {"hidden": 1, "activation": "relu", "norm": "layer"}
    _, found = pyops.edge_mlp.backward(graph, x, params, gy=gy, **options)[:2]
    o = 0.5 / np.sqrt(0.25 + 1e-5)
    np.testing.assert_allclose(found[-4:], [-o, 2 * o, 1, 2], rtol=1e-5)


@pytest.mark.parametrize("ids", [np.arange(60)[::-1], np.arange(60) % 25])
def test_residual(rng, ids):
    """The features of the edge of each entry, added to its results, tangents and gradients."""
    graph = shared(GRAPH.src, GRAPH.dst, ids, 20, 15, 61)
    x, z, f, hf = (rng.standard_normal((rows, EDGE)) for rows in (20, 15, 61, 61))
    params = rng.standard_normal(H * (3 * EDGE + 1) + EDGE * (H + 3))
    options = {"hidden": H, "norm": "layer", "activation": "tanh"}
    gy, start = rng.standard_normal((2, 60, EDGE))
    given = graph, x, params, z, f

    def calls(op, **options):
        yield op(*given, out=start.copy(), accumulate=True, **options)
        yield op.jvp(*given, None, None, None, hf, **options)
        first = op.backward(*given, gy, **options)
        second = op.double_backward(*given, gy, None, None, None, hf, **options)
        yield from (*first, *second)

    found = [*calls(pyops.edge_mlp, residual=True, **options)]
    expected = [*calls(pyops.edge_mlp, **options)]
    ids = graph.edge_ids
    expected[0] += f[ids]
    expected[1] += hf[ids]
    np.add.at(expected[5], ids, gy)
    expected[-1] += hf[ids]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("phase", ["forward", "backward", "jvp"])
def test_residual_of_another_width(rng, phase):
    """Features are added to results of their width, or to none."""
    function = pyops.edge_mlp if phase == "forward" else getattr(pyops.edge_mlp, phase)
    caller = "edge_mlp" if phase == "forward" else f"edge_mlp.{phase}"
    x, z, f = features(rng)
    options = {"hidden": H, "residual": True}
    for features_of_edges, width in (f, EDGE), (None, 0):
        params = np.ones(H * (SRC + DST + width + 1) + OUT * (H + 1))
        given = [GRAPH, x, params, z, features_of_edges]
        more = {"backward": [np.ones((60, OUT))], "jvp": [x, None, None, None]}.get(phase, [])
        message = (
            rf"^{caller}: residual: expected out_features = edge_width, "
            f"got out_features={OUT} and edge_width={width}$"
        )
        with pytest.raises(ValueError, match=message):
            function(*given, *more, **options)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("depth", [1, 3])
def test_blocks_there_and_back(rng, depth, norm, kind):
    """Unpacked parts are views with the values of those that were packed."""
    weights, biases, scale, shift = layers(rng, depth, norm, kind)
    block = blocks.pack_edge_network(weights, biases, scale, shift, src_width=SRC, dst_width=DST)
    assert block.dtype == kind
    sizes = {"src_width": SRC, "dst_width": DST, "edge_width": EDGE}
    parts = blocks.unpack_edge_network(block, **sizes, hidden=H, depth=depth, norm=norm)
    np.testing.assert_array_equal(np.concatenate(parts.first, axis=1), weights[0])
    pairs = [*zip(parts.weights, weights[1:], strict=True), *zip(parts.biases, biases, strict=True)]
    for found, expected in [*pairs, (parts.scale, scale), (parts.shift, shift)]:
        np.testing.assert_array_equal(found, expected)
    for view in (*parts.first, *parts.weights, *parts.biases, parts.scale, parts.shift):
        if view is not None:
            assert np.shares_memory(view, block)
            view[...] = 3
    assert (block == 3).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda w, b, o: w.pop(), ValueError, "expected as many weights as biases, two or more"),
        (lambda w, b, o: o.pop("shift"), ValueError, "expected scale and shift, or neither"),
        (lambda w, b, o: o.update(src_width=0), ValueError, "src_width: expected an integer from"),
        (lambda w, b, o: o.update(dst_width=-1), ValueError, "dst_width: expected an integer"),
        (lambda w, b, o: o.update(dst_width=9), ValueError, r"weights\[0\]: expected \(hidden"),
        (lambda w, b, o: w.__setitem__(0, b[0]), ValueError, r"weights\[0\]: expected \(hidden"),
        (lambda w, b, o: w.__setitem__(1, w[1].T), ValueError, r"weights\[1\]: expected shape"),
        (lambda w, b, o: b.__setitem__(1, b[0]), ValueError, r"biases\[1\]: expected shape \(6,\)"),
        (lambda w, b, o: o.update(scale=b[0]), ValueError, r"scale: expected shape \(6,\)"),
        (lambda w, b, o: w.__setitem__(1, w[1].tolist()), TypeError, "expected a NumPy array"),
        (lambda w, b, o: b.__setitem__(0, b[0].astype("f")), TypeError, "expected float64 like"),
    ],
)
def test_refused_parts(rng, change, error, message):
    weights, biases, scale, shift = layers(rng, 1, "layer")
    options = {"src_width": SRC, "dst_width": DST, "scale": scale, "shift": shift}
    change(weights, biases, options)
    with pytest.raises(error, match=f"^pack_edge_network: .*{message}"):
        blocks.pack_edge_network(weights, biases, **options)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"hidden": 0}, ValueError, "hidden: expected"),
        ({"depth": 2.0}, TypeError, "depth: expected"),
        ({"edge_width": -1}, ValueError, "edge_width: expected"),
        ({"norm": "batch"}, ValueError, "norm: expected 'none' or 'layer', got 'batch'"),
        ({"edge_width": 3}, ValueError, "block: expected length"),
    ],
)
def test_refused_blocks(rng, change, error, message):
    weights, biases, *_ = layers(rng, 1, "none")
    block = blocks.pack_edge_network(weights, biases, src_width=SRC, dst_width=DST)
    sizes = {"src_width": SRC, "dst_width": DST, "edge_width": EDGE, "hidden": H, **change}
    with pytest.raises(error, match=f"^unpack_edge_network: {message}"):
        blocks.unpack_edge_network(block, **sizes)
