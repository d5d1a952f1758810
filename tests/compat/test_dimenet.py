"""Calls of pylibcugraphops.dimenet against the corresponding operators."""

import re

import numpy as np
import pytest

import pyops
from pyops.compat.pylibcugraphops import MMAOp, dimenet

from ..support.compare import assert_same

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


NEGATIVE, FLOAT = lambda a: a - 100, lambda a: a * 1.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"coo_idx": lambda c: c[0]}, ValueError, "expected shape"),
        ({"coo_idx": lambda c: [[0, 1], [0]]}, TypeError, "expected int32 or int64, got list with"),
        ({"coo_idx": lambda c: None}, TypeError, "expected int32 or int64, got None"),
        ({"coo_idx": FLOAT}, TypeError, "expected int32 or int64, got float64"),
        ({"coo_idx": NEGATIVE}, IndexError, "expected indices from 0 to num_src-1=6"),
        ({"coo_idx": lambda c: c + NODES}, IndexError, "expected indices from 0 to num_src-1=6"),
        ({"coo_idx": np.ma.array}, TypeError, "expected a plain array, got a MaskedArray"),
        ({"dst_offsets": lambda o: o[::-1]}, ValueError, "expected the offsets of coo_idx"),
        ({"dst_offsets": NEGATIVE}, ValueError, "expected the offsets of coo_idx"),
        ({"dst_offsets": lambda o: o[:-1]}, ValueError, "expected the offsets of coo_idx"),
        ({"dst_offsets": lambda o: o[:0]}, ValueError, "expected the offsets of coo_idx"),
        ({"dst_offsets": lambda o: o + o}, ValueError, "expected the offsets of coo_idx"),
        ({"dst_offsets": FLOAT}, TypeError, "expected int32 or int64, got float64"),
        ({"dst_offsets": lambda o: o[None]}, ValueError, "expected one dimension"),
        ({"dst_edge_index": lambda o: o[::-1]}, ValueError, "expected edges by destination"),
        ({"dst_edge_index": lambda o: 0 * o}, ValueError, "expected each edge once"),
        ({"dst_edge_index": lambda o: o[1:]}, ValueError, "expected each edge once"),
        ({"dst_edge_index": NEGATIVE}, ValueError, "expected each edge once"),
        ({"dst_edge_index": FLOAT}, TypeError, "expected int32 or int64, got float64"),
        ({"output_embedding": lambda y: y[1:]}, ValueError, "expected shape"),
        (
            {"input_vector": lambda a: a[1:]},
            ValueError,
            "expected shape (num_edges=60, 3), got (59",
        ),
        ({"input_rbf": lambda a: a[:, 1:]}, ValueError, "expected shape (num_edges=60, num_spheri"),
        ({"input_rbf": lambda a: None}, TypeError, "expected a NumPy array, got None"),
        ({"input_embedding": lambda a: a > 0}, TypeError, "expected float32 or float64, got bool"),
        ({"input_weights": lambda a: a[1:]}, ValueError, "expected shape"),
        ({"num_spherical": lambda n: 0}, ValueError, "expected an integer from 1 to 32, got 0"),
    ],
)
def test_refused(case, change, error, message):
    a, coo, _, offsets, order = case
    given = {"output_embedding": a["gy"].copy()}
    given |= {"input_" + name: a[name] for name in ("vector", "rbf", "embedding", "weights")}
    given |= {"coo_idx": coo, "dst_offsets": offsets, "dst_edge_index": order, "num_spherical": 7}
    ((name, function),) = change.items()
    given[name] = function(given[name])
    message = re.escape(f"agg_edge_to_edge_fwd: {name}: {message}")
    with pytest.raises(error, match=f"^{message}"):
        dimenet.agg_edge_to_edge_fwd(**given)


def test_messages_name_what_an_array_is_compared_with(case):
    a, coo, offsets, *_ = case
    other = np.float32 if a["gy"].dtype == np.float64 else np.float64
    names = "vector", "rbf", "h_rbf", "embedding", "h_embedding", "gy", "weights"
    inputs = {name: a[name] for name in names} | {"h_rbf": a["h_rbf"].astype(other)}
    outs = [np.empty_like(a[name]) for name in ("rbf", "embedding", "weights")]
    message = "^agg_edge_to_edge_bwd2_main: input_grad_grad_rbf: expected .* like input_vector, got"
    with pytest.raises(TypeError, match=message):
        dimenet.agg_edge_to_edge_bwd2_main(*outs, *inputs.values(), coo, offsets)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("input_vector", lambda a: a[:, 0], "expected shape (num_edges, 1), got (20,)"),
        ("input_grad_grad_vector", lambda a: a[1:], "expected shape (20, 1), got (19, 1)"),
        ("input_w", lambda a: a[None], "expected shape (num_radial,), got (1, 6)"),
        ("input_grad_grad_w", lambda a: a[1:], "expected shape (num_radial=6,), got (5,)"),
        ("input_grad_grad_w", lambda a: a > 0, "expected float32 or float64, got bool"),
        ("input_grad_rbf", lambda a: a[1:], "expected shape (num_samples=20, num_radial=6)"),
        ("input_grad_rbf", lambda a: a.astype("f"), "expected float64 like input_vector, got"),
        ("input_grad_sbf_rad", lambda a: a[1:], "expected shape (num_samples=20, num_spherical"),
        ("input_grad_sbf_rad", lambda a: a[:, 1:], "expected 1 to 16 times n_radial=6 columns"),
        ("input_grad_sbf_rad", lambda a: np.ones((20, 102)), "expected 1 to 16 times n_radial=6"),
        ("output_grad_w", lambda a: a[1:], "expected shape (6,), got (5,)"),
    ],
)
def test_refused_by_the_basis(name, change, message):
    shapes = {"rbf": (20, 6), "sbf_rad": (20, 42), "vector": (20, 1), "w": (6,)}
    given = {"output_grad_grad_rbf": "rbf", "output_grad_grad_sbf_rad": "sbf_rad"}
    given |= {"output_grad_w": "w", "input_grad_grad_vector": "vector", "input_grad_grad_w": "w"}
    given |= {"input_grad_rbf": "rbf", "input_grad_sbf_rad": "sbf_rad"}
    given |= {"input_vector": "vector", "input_w": "w"}
    given = {n: np.full(shapes[kind], 0.5) for n, kind in given.items()}
    given[name] = change(given[name])
    message = re.escape(f"radial_basis_bwd_bwd: {name}: {message}")
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        dimenet.radial_basis_bwd_bwd(**given)


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
