"""Sums, means and extremes over axes."""

import numpy as np
import pytest

import pyops
from pyops.testing import check_gradients

from ..support.broadcasts import REDUCTIONS
from ..support.compare import assert_close, assert_same
from ..support.layouts import LAYOUTS

SHAPES = (), (5,), (4, 5), (3, 4, 5), (2, 1, 3, 4), (700, 3), (3, 70_001), (2, 300, 200)
AXES = None, (), 0, -1, (0, -1), (1,), (1, 2), (0, 2)
CASES = [(s, a) for s in SHAPES for a in AXES if a in (None, ()) or len(s) > np.max(a)]
CASES = [(s, a) for s, a in CASES if s or a in (None, ())]
CASES = [(s, a) for s, a in CASES if not (a == (0, -1) and len(s) < 2)]
every_name = pytest.mark.parametrize("name", REDUCTIONS)
every_case = pytest.mark.parametrize(("shape", "axis"), CASES)


def drawn(shape, seed=0):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.permutation(np.prod(shape, dtype=int)).reshape(shape) / 7 - 3.0)


@pytest.mark.parametrize("keepdims", [False, True])
@every_case
@every_name
def test_values(name, shape, axis, keepdims):
    x = drawn(shape)
    y = REDUCTIONS[name](x, axis=axis, keepdims=keepdims)
    expected = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
    assert_close([y], [expected], 1e-14)
    for layout in "strided", "reversed", "Fortran", "byte-swapped":
        x = LAYOUTS[layout](x) if x.ndim else x
        again = REDUCTIONS[name](x, axis=axis, keepdims=keepdims)
        assert_close([again], [expected], 1e-14)


@pytest.mark.parametrize("keepdims", [False, True])
@every_case
@every_name
def test_derivatives(name, shape, axis, keepdims):
    x, options = drawn(shape), {"axis": axis, "keepdims": keepdims}
    op = REDUCTIONS[name]
    gy, h = drawn(op(x, **options).shape, 1), drawn(shape, 2)
    (gx,) = op.backward(x, gy, **options)
    y = np.asarray(getattr(np, name)(x, axis=axis, keepdims=True))
    weights = np.ones(shape) if name == "sum" else np.full(shape, y.size / x.size)
    if name in ("max", "min"):
        weights = (x == y) / (x == y).sum(axis=axis, keepdims=True)
    assert_close([gx], [weights * gy.reshape(y.shape)], 1e-14)
    dy = np.asarray((weights * h).sum(axis=axis, keepdims=keepdims))
    scale = abs(weights * h).sum() / abs(dy).max()
    assert_close([op.jvp(x, h, **options)], [dy], 1e-14 * scale)
    dx, dgy = op.double_backward(x, gy, h, **options)
    assert_close([dx, dgy], [np.zeros(shape), dy], 1e-14 * scale)


@every_name
def test_against_differences(name):
    for axis in None, 1, (0, 2):
        check_gradients(REDUCTIONS[name], drawn((3, 4, 5)), axis=axis)


@every_name
def test_out_and_accumulate(name):
    op, x = REDUCTIONS[name], drawn((4, 5, 6))
    y, h = op(x, axis=1), drawn(x.shape, 1)
    calls = {
        "forward": lambda **k: op(x, axis=1, **k),
        "jvp": lambda **k: op.jvp(x, h, axis=1, **k),
        "backward": lambda **k: op.backward(x, y, axis=1, **k),
        "double_backward": lambda **k: op.double_backward(x, y, h, axis=1, **k),
    }
    for phase, call in calls.items():
        expected = call()
        single = not isinstance(expected, tuple)
        for layout in np.copy, LAYOUTS["strided"]:
            out = [layout(np.full_like(a, 2)) for a in ([expected] if single else expected)]
            result = call(out=out[0] if single else out, accumulate=True)
            assert (result is out[0]) if single else all(map(np.shares_memory, result, out))
            assert_close(out, [a + 2 for a in ([expected] if single else expected)], 1e-14)
            call(out=out[0] if single else out)
            assert_same([np.array(a) for a in out], [expected] if single else expected), phase


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_share_equally(name):
    x = np.array([[1.0, 1, 1, 1], [2, 5, 5, 2]])
    (gx,) = REDUCTIONS[name].backward(x, np.array([8.0, 6]), axis=1)
    assert gx.tolist() == [[2, 2, 2, 2], [0, 3, 3, 0] if name == "max" else [3, 0, 0, 3]]
    assert REDUCTIONS[name].jvp(x, x, axis=1).tolist() == [1, 5 if name == "max" else 2]


@every_name
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity(name, dtype):
    x = np.arange(5000, dtype=dtype).reshape(2, 2500)
    x[1, 17] = np.nan
    for shape, options in ((2,), {"axis": 1}), ((2, 1), {"axis": 1, "keepdims": True}):
        y = REDUCTIONS[name](x, **options).ravel()
        assert np.isnan(y).tolist() == [False, True]
        (gx,) = REDUCTIONS[name].backward(x, np.ones_like(y).reshape(shape), **options)
        assert not np.isnan(gx[0]).any()
    x[1, 17] = -np.inf if name == "max" else np.inf
    assert REDUCTIONS[name](x, axis=0)[18] == getattr(np, name)(x, axis=0)[18]
    infinite = np.full((3, 4), -np.inf, dtype)
    assert (REDUCTIONS[name](infinite, axis=0) == -np.inf).all()
    assert (REDUCTIONS[name](-infinite, axis=1) == np.inf).all()


def test_nothing_to_reduce():
    x = np.zeros((0, 3))
    assert pyops.sum(x, axis=0).tolist() == [0, 0, 0]
    assert pyops.sum(x, axis=1).shape == (0,)
    assert np.isnan(pyops.mean(x, axis=0)).all()
    assert pyops.sum.backward(x, np.ones(3), axis=0)[0].shape == (0, 3)
    assert pyops.max(x, axis=1).shape == (0,)
    with pytest.raises(ValueError, match=r"^max: x: expected elements along axis, got shape"):
        pyops.max(x, axis=0)


@every_name
def test_threads(name):
    for shape, axis in [((3, 70_001), 1), ((90, 1500), 0), ((2, 300, 400), (0, 2)), ((10**6,), 0)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        op = REDUCTIONS[name]
        runs = []
        for threads in 1, 2, 3, 7:
            pyops.set_num_threads(threads)
            y = op(x, axis=axis)
            runs.append([y, *op.backward(x, y, axis=axis), op.jvp(x, x, axis=axis)])
        for again in runs[1:]:
            assert_same(again, runs[0])


@every_name
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"axis": 2}, ValueError, "axis: expected axes from -2 to 1 of x, got 2"),
        ({"axis": (0, -2)}, ValueError, "axis: expected different axes, got"),
        ({"axis": 1.0}, TypeError, "axis: expected an integer, a tuple of them or None, got 1.0"),
        ({"axis": [0]}, TypeError, "axis: expected an integer, a tuple of them or None, got"),
        ({"axis": True}, TypeError, "axis: expected an integer, a tuple of them or None, got True"),
        ({"keepdims": 1}, TypeError, "keepdims: expected True or False, got 1"),
        ({"dims": 1}, TypeError, "unexpected option 'dims'; options are: axis, keepdims"),
    ],
)
def test_refused(name, options, error, message):
    with pytest.raises(error, match=f"^{name}: {message}"):
        REDUCTIONS[name](np.ones((2, 3)), **options)
