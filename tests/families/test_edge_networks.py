"""Networks of the entries of a graph, and their blocks of parameters."""

from itertools import pairwise

import numpy as np
import pytest

import pyops
from pyops import blocks

from ..reference.activations import EXACT
from ..support.graphs import drawn

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
