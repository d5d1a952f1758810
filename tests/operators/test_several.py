"""Several reductions at once: each result and derivative is that of a call of its own."""

import numpy as np
import pytest

import pyops

from ..support.cases import Case
from ..support.compare import assert_close, assert_same

REDUCE = "mean", "std", "max", "amin"


def problem(reduce, dtype=np.float64):
    made = Case("aggregate", (("reduce", reduce),), (), "shared edges").problem()
    return made.map(lambda a: a.astype(dtype))


def cotangents(dtype=np.float64):
    """Return a cotangent for each reduction, None for one of them."""
    shape, rng = problem("sum").arrays["gy"].shape, np.random.default_rng(5)
    found = [rng.standard_normal(shape).astype(dtype) for _ in REDUCE]
    return (*found[:2], None, found[3])


def total(parts):
    """Return the sums of tuples of arrays, by place."""
    return [sum(arrays) for arrays in zip(*parts, strict=True)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_phases(dtype):
    p, gys = problem("sum", dtype), cotangents(dtype)
    graph, inputs, h = p.graph, p.inputs, p.cotangents
    op, tolerance = pyops.aggregate, 50 * np.finfo(dtype).eps
    each = [{"reduce": name} for name in REDUCE]
    assert_same(op(graph, *inputs, reduce=REDUCE), [op(graph, *inputs, **one) for one in each])
    y, saved = op.forward(graph, *inputs, reduce=REDUCE)
    assert (len(y), saved) == (len(REDUCE), ())
    pairs = [(g, one) for g, one in zip(gys, each, strict=True) if g is not None]
    expected = total(op.backward(graph, *inputs, g, **one) for g, one in pairs)
    found = op.backward(graph, *inputs, gys, reduce=REDUCE)
    assert_close(found, expected, tolerance)
    tangents = [op.jvp(graph, *inputs, *h, **one) for one in each]
    assert_same(op.jvp(graph, *inputs, *h, reduce=REDUCE), tangents)
    seconds = [
        op.double_backward(graph, *inputs, g, *h, **one) for g, one in zip(gys, each, strict=True)
    ]
    *second, dgy = op.double_backward(graph, *inputs, gys, *h, reduce=REDUCE)
    assert_close(second, total(some[:-1] for some in seconds), tolerance)
    assert_same(dgy, tangents)


def test_keywords():
    """`wanted`, `out` and `accumulate` hold for all reductions together."""
    p, gys = problem("sum"), cotangents()
    graph, inputs, h, op = p.graph, p.inputs, p.cotangents, pyops.aggregate
    y = op(graph, *inputs, reduce=REDUCE)
    outs = tuple(np.ones_like(a) for a in y)
    assert all(
        a is b for a, b in zip(op(graph, *inputs, reduce=REDUCE, out=outs), outs, strict=True)
    )
    assert_same(outs, y)
    op(graph, *inputs, reduce=REDUCE, out=outs, accumulate=True)
    assert_close(outs, [2 * a for a in y], 1e-14)
    gx = op.backward(graph, *inputs, gys, reduce=REDUCE, wanted=("x",))
    assert [a is not None for a in gx] == [True, False, False, False]
    kept = (gx[0].copy(), None, None, None)
    again = op.backward(
        graph, *inputs, gys, reduce=REDUCE, wanted=("x",), out=kept, accumulate=True
    )
    assert again[0] is kept[0]
    assert_close([kept[0]], [2 * gx[0]], 1e-14)
    narrow = [None if g is None else g[:, : inputs[0].shape[1]] for g in gys]
    named = op.backward(graph, x=inputs[0], gy=narrow, reduce=REDUCE)
    assert named[0].shape == inputs[0].shape
    second = op.double_backward(graph, *inputs, gys, *h, reduce=REDUCE, wanted=("gy", "edge"))
    assert [a is not None for a in second] == [False, True, False, False, True]
    alone = op.double_backward(graph, *inputs, gys, *h, reduce=REDUCE, wanted=("weight",))
    assert [a is not None for a in alone] == [False, False, True, False, False]


GRAPH, X = pyops.Graph([0, 1], [1, 0]), np.ones((2, 3))
REFUSALS = {
    r"aggregate: reduce: expected names among \('sum',.*\), got 'mode'": {
        "reduce": ("sum", "mode")
    },
    r"aggregate: reduce: expected different names, got \('sum', 'sum'\)": {
        "reduce": ("sum", "sum")
    },
    r"aggregate: reduce: expected different names, got \(\)": {"reduce": ()},
    "aggregate: out: expected a tuple of 2, got 1": {"reduce": ("sum", "max"), "out": (X,)},
    "aggregate: out: expected a tuple of 1, got ndarray": {"reduce": ("sum",), "out": X},
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        pyops.aggregate(GRAPH, X, **REFUSALS[message])


def test_half_precision():
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    y = pyops.aggregate(GRAPH, x, reduce=("sum", "max"))
    assert [a.dtype for a in y] == [np.float16] * 2
    gx = pyops.aggregate.backward(GRAPH, x, gy=(x, x), reduce=("sum", "max"))[0]
    assert gx.dtype == np.float16
    assert np.array_equal(gx, 2 * x[::-1])


def test_number_of_cotangents():
    with pytest.raises(
        ValueError, match=r"^aggregate\.backward: gy: expected a tuple of 2, got 1$"
    ):
        pyops.aggregate.backward(GRAPH, X, gy=(X,), reduce=("sum", "max"))
