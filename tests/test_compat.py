"""The calls of pylibcugraphops.dimenet against the operators they stand for."""

import numpy as np
import pytest

import pyops
from pyops.compat.pylibcugraphops import MMAOp, dimenet

from .compare import assert_same

EDGES, NODES = 60, 7


@pytest.fixture(params=[np.float32, np.float64])
def case(request, rng):
    src, dst = rng.integers(0, NODES, (2, EDGES))
    src.sort()
    shapes = {"vector": 3, "rbf": 42, "embedding": 8, "gy": 8}
    arrays = {n: rng.standard_normal((EDGES, width)) for n, width in shapes.items()}
    arrays["weights"] = rng.standard_normal((50, 4))
    arrays["h_rbf"] = rng.standard_normal((EDGES, 42))
    arrays["h_embedding"] = rng.standard_normal((EDGES, 8))
    arrays = {n: a.astype(request.param) for n, a in arrays.items()}
    order = np.argsort(dst, kind="stable")

    def offsets(ends):
        return np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=NODES))])

    return arrays, np.stack([src, dst]), offsets(src), offsets(dst), order


def test_aggregation(case):
    a, coo, src_offsets, dst_offsets, order = case
    graph = pyops.Graph(*coo, NODES)
    inputs = [a[name] for name in ("vector", "rbf", "embedding", "weights")]
    y = np.full_like(a["gy"], np.nan)
    dimenet.agg_edge_to_edge_fwd(y, *inputs, coo, dst_offsets, order, MMAOp.HighPrecision)
    assert_same([y], [pyops.dimenet_aggregate(graph, *inputs)])
    outs = [np.full_like(x, np.nan) for x in inputs[1:]]
    dimenet.agg_edge_to_edge_bwd(
        *outs, *inputs[:3], a["gy"], inputs[3], coo, src_offsets, MMAOp.LowPrecision, 0
    )
    assert_same(outs, pyops.dimenet_aggregate.backward(graph, *inputs, a["gy"])[1:])
    vector, rbf, embedding, weights = inputs
    dimenet.agg_edge_to_edge_bwd2_main(
        *outs, vector, rbf, a["h_rbf"], embedding, a["h_embedding"], a["gy"], weights, coo,
        src_offsets, MMAOp.HighPrecision,
    )  # fmt: skip
    cotangents = None, a["h_rbf"], a["h_embedding"], None
    _, *seconds, dgy = pyops.dimenet_aggregate.double_backward(graph, *inputs, a["gy"], *cotangents)
    assert_same(outs, seconds)
    dimenet.agg_edge_to_edge_bwd2_grad(
        y, vector, rbf, a["h_rbf"], embedding, a["h_embedding"], weights, coo, dst_offsets, order,
        MMAOp.HighPrecision, cuda_stream=0,
    )  # fmt: skip
    assert_same([y], [dgy])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_basis(dtype, rng):
    x = rng.uniform(0.1, 1.1, (20, 1)).astype(dtype)
    w = np.pi * np.arange(1, 7).astype(dtype)
    shapes = {"rbf": (20, 6), "sbf": (20, 42), "x": (20, 1), "w": (6,)}
    out = {n: np.full(s, np.nan, dtype) for n, s in shapes.items()}
    given = {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}
    dimenet.radial_basis_fwd(out["rbf"], out["sbf"], x, w)
    assert_same([out["rbf"], out["sbf"]], pyops.dimenet_basis(x[:, 0], w))
    dimenet.radial_basis_bwd(out["x"], out["w"], given["rbf"], given["sbf"], x, w)
    gx, gw = pyops.dimenet_basis.backward(x[:, 0], w, given["rbf"], given["sbf"])
    assert_same([out["x"], out["w"]], [gx[:, None], gw])
    dimenet.radial_basis_bwd_bwd(
        out["rbf"], out["sbf"], out["w"], given["x"], given["w"], given["rbf"], given["sbf"], x, w
    )
    _, *expected = pyops.dimenet_basis.double_backward(
        x[:, 0], w, given["rbf"], given["sbf"], given["x"][:, 0], given["w"]
    )
    assert_same([out["w"], out["rbf"], out["sbf"]], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coo": lambda c: c[0]}, "coo_idx: expected shape"),
        ({"offsets": lambda o: o[::-1]}, "dst_offsets: expected the offsets of coo_idx"),
        ({"order": lambda o: o[::-1]}, "dst_edge_index: expected edges by destination"),
        ({"order": lambda o: 0 * o}, "dst_edge_index: expected each edge once"),
        ({"y": lambda y: y[1:]}, "output_embedding: expected shape"),
    ],
)
def test_refused(case, change, message):
    a, coo, _, offsets, order = case
    given = {"y": a["gy"].copy(), "coo": coo, "offsets": offsets, "order": order}
    given |= {name: function(given[name]) for name, function in change.items()}
    inputs = [a[name] for name in ("vector", "rbf", "embedding", "weights")]
    with pytest.raises(ValueError, match=f"^agg_edge_to_edge_fwd: {message}"):
        dimenet.agg_edge_to_edge_fwd(
            given["y"], *inputs, given["coo"], given["offsets"], given["order"], None
        )


@pytest.mark.parametrize("fault", ["shape", "precision", "read-only"])
def test_no_output_is_written_to_where_one_is_refused(case, fault):
    a, coo, offsets, *_ = case
    inputs = [a[name] for name in ("vector", "rbf", "embedding", "gy", "weights")]
    outs = [np.zeros_like(a[name]) for name in ("rbf", "embedding", "weights")]
    if fault == "shape":
        outs[2] = outs[2][1:]
    elif fault == "precision":
        outs[2] = outs[2].astype(np.float32 if outs[2].dtype == np.float64 else np.float64)
    else:
        outs[2].flags.writeable = False
    message = "^agg_edge_to_edge_bwd: output_grad_weights: expected"
    with pytest.raises((TypeError, ValueError), match=message):
        dimenet.agg_edge_to_edge_bwd(*outs, *inputs, coo, offsets)
    assert not any(out.any() for out in outs)
