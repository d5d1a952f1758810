"""Elementwise functions and reductions on the device, against the host."""

import re

import numpy as np
import pytest

import pyops
from pyops._functions import FORMS, FUNCTIONS
from pyops.cuda import _device
from pyops.cuda._formulas import cuda

from ...support.broadcasts import FUNCTIONS as OPERATORS
from ...support.broadcasts import PAIRS, problem
from ...support.cases import PHASES
from ...support.compare import assert_close, assert_same
from .host import COMPILER
from .platform import Platform, to_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
every_phase = pytest.mark.parametrize("phase", PHASES)
SMALL = [name for name, shapes in PAIRS.items() if np.prod(np.broadcast_shapes(*shapes)) < 10_000]


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    made = Platform()
    monkeypatch.setattr(_device, "found", lambda: made)
    return made


@every_phase
@pytest.mark.parametrize("name", OPERATORS)
def test_functions(name, phase):
    p = problem(name, "pairs")
    assert_close(p.map(to_device).run(phase), p.run(phase), 1e-13)


@every_phase
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pair", SMALL)
def test_broadcasting(pair, dtype, phase):
    p = problem("multiply", pair, dtype)
    got = p.map(to_device).run(phase)
    assert all(a is None or a.dtype == dtype for a in got)
    assert_close(got, p.run(phase), 32 * np.finfo(dtype).eps)


@pytest.mark.parametrize("pair", ["in parts", "in parts inside"])
def test_sums_in_parts(pair, platform):
    """Sums of many terms are split into tiles, which run in any order."""
    p = problem("multiply", pair, np.float32)
    expected = p.map(to_device).run("backward")
    assert_close(expected, p.run("backward"), 1e-6)
    assert any(
        grid[1] > 1 for _, kernel, grid, _ in platform.runtime.launched if kernel == "reduce"
    )
    platform.runtime.order = 7
    assert_same(p.map(to_device).run("backward"), expected)


@every_phase
def test_one_cotangent(phase):
    """Only the inputs of requested results are read: an absent cotangent does not spread NaN."""
    p = problem("divide", "pairs").map(to_device)
    for which in 0, 1:
        h = [p.h[i] if i == which else None for i in (0, 1)]
        q, here = p.map(lambda a: a), p.map(np.array)
        q.h, here.h = h, [None if a is None else np.array(a) for a in h]
        assert_close(q.run(phase), here.run(phase), 1e-14)


@pytest.mark.parametrize("name", ["relu", "maximum", "leaky_relu", "abs"])
def test_nan_comes_through(name):
    p = problem(name, "same")
    p.inputs[0][2, 3] = np.nan
    q = p.map(to_device)
    for phase in PHASES:
        for got, expected in zip(q.run(phase), p.run(phase), strict=True):
            assert np.array_equal(np.isnan(got), np.isnan(expected))


def test_accumulate():
    p = problem("multiply", "bias")
    expected = p.run("backward")
    out = [to_device(np.ones(a.shape)) for a in expected]
    p.map(to_device).run("backward", out=out, accumulate=True)
    assert_close([np.array(a) for a in out], [a + 1 for a in expected], 1e-13)


SHAPES = (), (5,), (4, 5), (2, 1, 3, 4), (700, 3), (3, 7001), (0, 3), (3, 0)
AXES = None, (), 0, -1, (0, -1), (1, 2)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions(name, shape, axis, keepdims):
    rng = np.random.default_rng(0)
    op, options = getattr(pyops, name), {"axis": axis, "keepdims": keepdims}
    x, h = (np.asarray(rng.standard_normal(shape)) for _ in range(2))
    try:
        y = op(x, **options)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            op(to_device(x), **options)
        return
    gy = np.asarray(rng.standard_normal(y.shape))
    for phase, arrays in calls(op, x, gy, h):
        expected, got = phase(*arrays, **options), phase(*map(to_device, arrays), **options)
        for a, b in zip(listed(got), listed(expected), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def calls(op, x, gy, h):
    """Return the phases of a reduction with their arguments."""
    derivatives = (op.backward, (x, gy)), (op.double_backward, (x, gy, h)), (op.jvp, (x, h))
    return [(op, (x,)), *derivatives]


def listed(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
@pytest.mark.parametrize("spoilt", [False, True], ids=["ties", "NaN"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_share_their_gradient(name, spoilt, axis):
    """Ties share the gradient equally; a NaN gets the whole gradient, as NaN."""
    rng = np.random.default_rng(0)
    op = getattr(pyops, name)
    x = rng.integers(0, 3, (4, 9, 5)).astype(float)
    if spoilt:
        x[1, 2, 3] = np.nan
    gy, h = (rng.standard_normal(np.shape(a)) for a in (op(x, axis=axis), x))
    for phase, arrays in calls(op, x, np.asarray(gy), h):
        expected, got = phase(*arrays, axis=axis), phase(*map(to_device, arrays), axis=axis)
        for a, b in zip(listed(got), listed(expected), strict=True):
            np.testing.assert_allclose(a, b, 1e-13, 1e-13)
    gx = op.backward(to_device(x), to_device(gy), axis=axis)[0]
    out = to_device(np.ones(x.shape))
    op.backward(to_device(x), to_device(gy), axis=axis, out=[out], accumulate=True)
    np.testing.assert_allclose(out, 1 + gx, 1e-13, 1e-13)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_without_cotangents(name):
    """Absent cotangents count as 0; only requested results are computed, in any block order."""
    op, rng = getattr(pyops, name), np.random.default_rng(0)
    x, h = (to_device(rng.integers(0, 900, (3, 7001)).astype(np.float32)) for _ in range(2))
    gy = to_device(np.ones(3, np.float32))
    assert not op.backward(x, None, axis=1)[0].any()
    dx, dgy = op.double_backward(x, gy, None, axis=1)
    assert not dx.any()
    assert not dgy.any()
    assert op.double_backward(x, gy, h, axis=1, wanted=["x"])[1] is None
    expected = op.backward(x, gy, axis=1), op.double_backward(x, gy, h, axis=1)
    _device.found().runtime.order = 7
    again = op.backward(x, gy, axis=1), op.double_backward(x, gy, h, axis=1)
    assert_same([*again[0], *again[1]], [*expected[0], *expected[1]])


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("x**y*l", "(pow(x, y) * l)"),
        ("merge(0.0, x, x <= 0)", "((x <= real(0)) ? real(0.0) : x)"),
        ("merge(x, sign(1.0, x), x == 0 .or. x /= x)",
         "(((x == real(0)) || (x != x)) ? x : copysign(real(1.0), x))"),
        ("-2*d*f", "(((-real(2)) * d) * f)"),
        ("min(-w, log(huge(w)))", "fmin((-w), LOG_HUGE)"),
    ],
)  # fmt: skip
def test_formulas(formula, expected):
    assert cuda(formula) == expected


def test_every_formula_can_be_written():
    for function in FUNCTIONS:
        for form in FORMS:
            assert cuda(form(function)).count("(") == cuda(form(function)).count(")")
