"""`where` and `clip`, softmax and its logarithm: values, derivatives, ties, NaN and refusals."""

import numpy as np
import pytest

import pyops
from pyops.testing import check_gradients

from ..support.compare import assert_close, assert_same

SHAPES = {
    "same": ((5, 7), (5, 7), (5, 7)),
    "rows": ((6, 1), (6, 5), (5,)),
    "scalars": ((), (4, 3), ()),
    "wide condition": ((4, 3, 2), (2,), (3, 1)),
    "no elements": ((0, 3), (3,), (1, 3)),
    "in parts": ((3, 70_001), (3, 1), (70_001,)),
}
PLACES = {
    "last": ((5, 7, 33), -1),
    "first": ((33, 5), 0),
    "middle": ((3, 70, 40), 1),
    "one": ((4, 1), 1),
    "all": ((9,), 0),
    "long": ((2, 20_000), -1),
    "long columns": ((9_000, 3), 0),
    "many rows": ((3_000, 3), -1),
    "none": ((0, 4), 1),
    "nothing along": ((4, 0), 1),
}
BOUNDS = {"min": -0.5, "max": 0.7}
INF, NAN = np.inf, np.nan


def draw(shape, seed=0, dtype=np.float64):
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), dtype)


def summed_to(array, shape):
    array = array.sum(tuple(range(array.ndim - len(shape))))
    return array.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


@pytest.mark.parametrize("kind", [bool, np.int8, np.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_where(name, kind):
    shapes = SHAPES[name]
    condition = np.asarray(draw(shapes[0]) > 0).astype(kind)
    x1, x2 = draw(shapes[1], 1), draw(shapes[2], 2)
    y = pyops.where(condition, x1, x2)
    assert_same([y], [np.asarray(np.where(condition, x1, x2))])
    gy = draw(y.shape, 3)
    some = np.where(condition, gy, 0), np.where(condition, 0, gy)
    expected = [summed_to(part, x.shape) for part, x in zip(some, (x1, x2), strict=True)]
    none, *found = pyops.where.backward(condition, x1, x2, gy)
    assert none is None
    assert_close(found, expected, 1e-12)
    h = draw(x1.shape, 4), draw(x2.shape, 5)
    along = np.asarray(np.where(condition, *h))
    assert_same([pyops.where.jvp(condition, x1, x2, None, *h)], [along])
    second = pyops.where.double_backward(condition, x1, x2, gy, None, *h)
    assert_same(second[1:], [np.zeros(x1.shape), np.zeros(x2.shape), along])
    alone = pyops.where.jvp(condition, x1, x2, None, None, h[1])
    assert_same([alone], [np.asarray(np.where(condition, np.zeros(x1.shape), h[1]))])


def test_where_selects_special_values():
    """A sign, NaN or infinity of the other side reaches neither value nor gradient."""
    condition, x1 = np.array([True, False]), np.array([-0.0, NAN])
    x2, gy = np.array([INF, -0.0]), np.array([NAN, 2.0])
    y = pyops.where(condition, x1, x2)
    assert (np.signbit(y) & (y == 0)).all()
    expected = np.array([NAN, 0.0]), np.array([0.0, 2.0])
    assert_same(pyops.where.backward(condition, x1, x2, gy)[1:], expected)


def test_accumulation_of_where():
    condition = (draw((5, 3)) > 0).astype(float)
    x1, x2, gy = draw((5, 3), 1), draw((3,), 2), draw((5, 3), 3)
    out = [None, np.ones((5, 3)), np.ones(3)]
    pyops.where.backward(condition, x1, x2, gy, wanted=("x1", "x2"), out=out, accumulate=True)
    expected = pyops.where.backward(condition, x1, x2, gy)
    assert_close(out[1:], [1 + part for part in expected[1:]], 1e-12)


CLIPPED = [NAN, -3.0, -0.5, 0.1, 0.7, 3.0, INF]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip(dtype):
    x, low, high = np.array(CLIPPED, dtype), *map(dtype, BOUNDS.values())
    x[[2, 4]] = low, high
    assert_same([pyops.clip(x, **BOUNDS)], [np.clip(x, low, high)])
    gy = np.array([1, NAN, 2, 3, 4, INF, 5], dtype)
    slopes = np.array([NAN, 0, 1, 1, 1, 0, 0])
    expected = np.array([NAN, 0, 2, 3, 4, 0, 0], dtype)
    assert_same(pyops.clip.backward(x, gy, **BOUNDS), [expected])
    h = np.arange(7, dtype=dtype)
    assert_same([pyops.clip.jvp(x, h, **BOUNDS)], [(slopes * h).astype(dtype)])
    second = pyops.clip.double_backward(x, gy, h, **BOUNDS)
    assert_same(second, [np.zeros(7, dtype), (slopes * h).astype(dtype)])


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-1e300))
    return powers / powers.sum(axis, keepdims=True)


def derivatives(name, x, g, h, axis):
    """Return the gradient for g, the derivative along h, and the second one by x."""
    p = softmax(x, axis)
    a, b = ((p * v).sum(axis, keepdims=True) for v in (g, h))
    if name == "softmax":
        both = (g - a) * (h - b)
        second = p * (both - (p * both).sum(axis, keepdims=True))
        return p * (g - a), p * (h - b), second
    total = g.sum(axis, keepdims=True)
    return g - p * total, h - b, -total * p * (h - b)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, place, dtype, tolerance, accumulate):
    (shape, axis), op = PLACES[place], getattr(pyops, name)
    x, g, h = (draw(shape, seed, dtype) for seed in range(3))
    x *= 3
    wide = [a.astype(np.float64) for a in (x, g, h)]
    gx, dgy, dx = derivatives(name, *wide, axis)
    y = softmax(wide[0], axis)
    y = y if name == "softmax" else np.log(y)
    start = np.ones(shape, dtype) if accumulate else None

    def added(*expected):
        return [e + accumulate for e in expected]

    def out(count):
        return None if start is None else tuple(start.copy() for _ in range(count))

    def close(found, expected):
        scale = 1 + max((abs(e).max(initial=0) for e in expected), default=0)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype
            assert (abs(one - other) <= tolerance * scale).all()

    options = {"axis": axis, "accumulate": accumulate}
    close([op(x, out=out(1) and out(1)[0], **options)], added(y))
    close(op.backward(x, g, out=out(1), **options), added(gx))
    close([op.jvp(x, h, out=out(1) and out(1)[0], **options)], added(dgy))
    close(op.double_backward(x, g, h, out=out(2), **options), added(dx, dgy))
    close([op.double_backward(x, g, h, out=out(2), **options)[1]], added(dgy))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_against_differences(name, axis):
    check_gradients(getattr(pyops, name), draw((4, 5, 6)), axis=axis)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_absent_cotangents(name):
    op, (x, g, h) = getattr(pyops, name), (draw((3, 4), seed) for seed in range(3))
    zero = np.zeros((3, 4))
    assert_same(op.double_backward(x, g, None), [zero, zero])
    assert_same(op.double_backward(x, None, h, wanted=("x",)), [zero, None])


def test_strides():
    """Inputs that are not contiguous, and a result in part of an array."""
    x, out = draw((6, 8))[::2, ::-1].T, np.zeros((16, 3))
    pyops.softmax(x, axis=0, out=out[::2])
    assert_close([out[::2]], [softmax(x, 0)], 1e-14)
    assert_same([pyops.clip(x, **BOUNDS)], [np.clip(x, *BOUNDS.values())])


SPECIAL = {
    "large": ([1e30, 1e30, -1e30], [0.5, 0.5, 0.0]),
    "infinite": ([-INF, 0.0, 0.0], [0.0, 0.5, 0.5]),
    "not a number": ([NAN, 0.0, 0.0], [NAN] * 3),
    "none finite": ([-INF] * 3, [NAN] * 3),
    "spread": ([0.0, -600.0, -90.0], None),
}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("across", [False, True])
def test_special_values(name, across):
    x, expected = SPECIAL[name]
    x = np.array([x, [1.0, 2.0, 3.0]])
    with np.errstate(all="ignore"):
        expected = softmax(x, 1) if expected is None else np.array([expected, softmax(x, 1)[1]])
    found = pyops.softmax(x.T.copy(), axis=0).T if across else pyops.softmax(x)
    np.testing.assert_allclose(found, expected, 1e-14)


X = draw((3, 4))
REFUSALS = {
    "clip: min: expected at most max=1.0, got 2.0": lambda: pyops.clip(X, min=2.0, max=1.0),
    "clip: max: expected this option": lambda: pyops.clip(X, min=2.0),
    "clip: min: expected a finite number": lambda: pyops.clip(X, min=-INF, max=1.0),
    "softmax: axis: expected an axis from -2 to 1 of x, got 2": lambda: pyops.softmax(X, axis=2),
    "softmax: axis: expected an integer, got None": lambda: pyops.softmax(X, axis=None),
    "log_softmax: axis: expected x with axes, got -1": lambda: pyops.log_softmax(np.array(1.0)),
    "softmax.backward: gy: expected shape": lambda: pyops.softmax.backward(X, X[0]),
    "where: condition: expected": lambda: pyops.where("no", X, X),
    "where: x2: expected a shape that broadcasts": lambda: pyops.where(X > 0, X, X[:2]),
    "where: x1: expected float32 like condition": lambda: pyops.where(X.astype("f"), X, X),
    "where.backward: wanted: expected names of inputs that have a derivative": lambda: (
        pyops.where.backward(X > 0, X, X, X, wanted=("condition",))
    ),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        REFUSALS[message]()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_bounds_in_half_precision(kind):
    """An element that equals a bound in its type keeps its gradient, whatever the rounding."""
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if kind == "bfloat16" else kind)
    drawn = abs(draw((500,))) * 10.0 ** np.arange(-5, 5).repeat(50)
    for bound in drawn[drawn < 6e4]:
        x = np.asarray([bound], dtype)
        (gx,) = pyops.clip.backward(x, np.ones(1, dtype), min=-1e5, max=float(bound))
        assert gx == 1
        assert pyops.clip(x, min=float(bound), max=1e5) == x
