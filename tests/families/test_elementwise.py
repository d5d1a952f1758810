"""Elementwise functions and their derivatives, also where they are not smooth."""

import numpy as np
import pytest
from scipy import special

import pyops
from pyops.testing import check_gradients

from ..reference import elementwise as reference
from ..support.broadcasts import BINARY, FUNCTIONS, PAIRS, POSITIVE, UNARY, problem
from ..support.cases import PHASES
from ..support.compare import assert_close
from ..support.complex_step import derivative

every_phase = pytest.mark.parametrize("phase", PHASES)
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@every_phase
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["multiply", "power", "maximum", "divide"])
def test_broadcasting_against_reference(name, pair, phase):
    p = problem(name, pair)
    assert_close(p.run(phase), p.expected(phase), 1e-12)


@every_phase
@pytest.mark.parametrize("pair", ["same", "bias", "longer row"])
@every_function
def test_against_reference(name, pair, phase):
    p = problem(name, pair)
    assert_close(p.run(phase), p.expected(phase), 1e-12)


@every_function
def test_against_differences(name):
    check_gradients(FUNCTIONS[name], *problem(name, "pairs").inputs)


@every_function
def test_reference(name):
    p = problem(name)
    for which, x in enumerate(p.inputs):
        along = [np.ones_like(x) if k == which else None for k in range(len(p.inputs))]

        def value(*inputs):
            return (reference.forward(name, *inputs),)

        slope = reference.FUNCTIONS[name][1 + which](*p.inputs)
        assert_close([slope + 0 * x], derivative(value, p.inputs, along), 1e-13)


@every_phase
@every_function
def test_float32(name, phase):
    single = problem(name, "longer row", np.float32)
    double = single.map(lambda a: a.astype(np.float64))
    for got, expected in zip(single.run(phase), double.run(phase), strict=True):
        assert got.dtype == np.float32
        scale = np.maximum(abs(expected), abs(expected).mean())
        assert (abs(got - expected) <= 16 * np.finfo(np.float32).eps * scale).all()


EXACT = {name: getattr(np, name) for name in FUNCTIONS if hasattr(np, name)}
EXACT |= {"erf": special.erf, "sigmoid": special.expit}
EXACT |= {"softplus": lambda x: np.logaddexp(0, x), "silu": lambda x: x * special.expit(x)}
EXACT |= {"gelu": lambda x: x * special.ndtr(x), "elu": lambda x: np.where(x > 0, x, np.expm1(x))}
EXACT |= {"hardsigmoid": lambda x: np.clip((x + 3) / 6, 0, 1)}


@pytest.mark.parametrize("name", [name for name in UNARY if name in EXACT])
def test_accuracy(name):
    """Errors are at most 5 units in the last place, over the whole domain."""
    # Below -1 the rounding of x / sqrt(2) is a larger part of the distribution function.
    domains = {"arcsin": (-1, 1), "tan": (-1.5, 1.5), "gelu": (-1, 60)}
    low, high = domains.get(name, (-60, 60))
    x = np.linspace(low, high, 100_003).astype(np.float32)
    x = np.concatenate([x, 1e-3 * x, 1e-20 * x])
    x = abs(x[x != 0]) if name in POSITIVE else x
    with np.errstate(over="ignore", divide="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    got, fine = FUNCTIONS[name](x), np.isfinite(rounded)
    assert (abs(got[fine] - exact[fine]) <= 5 * np.spacing(abs(rounded[fine]))).all()
    assert (got[~fine] == rounded[~fine]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_function
def test_place_in_the_array_does_not_matter(name, dtype):
    """Vector lanes, remainders and single elements give the same bits."""
    p = problem(name, "long row", dtype)
    if name in BINARY:
        p.inputs[1] = np.broadcast_to(p.inputs[1], p.inputs[0].shape).copy()
    row = [x[0] for x in p.inputs]
    expected = p.op(*row)
    for start in 1, 7, 1027:
        for stop in 1030, 1100:
            part = p.op(*(x[start:stop].copy() for x in row))
            assert part.tobytes() == expected[start:stop].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_function
def test_nan_comes_through(name, dtype):
    for which in range(len(FUNCTIONS[name].signature.inputs)):
        p = problem(name, "same", dtype)
        p.inputs[which][2, 3] = np.nan
        (y,) = p.run("forward")
        assert np.isnan(y[2, 3])
        assert np.isnan(y).sum() == 1
        for g in p.run("backward"):
            assert np.isnan(g).sum() <= 1


def slopes(name, *points):
    """Return the first and the pure second derivatives at a point."""
    op, points = FUNCTIONS[name], [np.array(p, np.float64) for p in points]
    one, none = np.array(1.0), [None] * len(points)
    first = [float(g) for g in op.backward(*points, one)]
    second = []
    for i in range(len(points)):
        h = [one if k == i else None for k in range(len(none))]
        second.append(float(op.double_backward(*points, one, *h)[i]))
    return first, second


@pytest.mark.parametrize(
    ("name", "points", "first", "second"),
    [
        ("relu", (0,), [0], [0]),
        ("relu", (-0.0,), [0], [0]),
        ("abs", (0,), [0], [0]),
        ("abs", (-2,), [-1], [0]),
        ("leaky_relu", (0,), [0.01], [0]),
        ("maximum", (2, 2), [0.5, 0.5], [0, 0]),
        ("maximum", (0.0, -0.0), [0.5, 0.5], [0, 0]),
        ("minimum", (2, 2), [0.5, 0.5], [0, 0]),
        ("maximum", (3, 2), [1, 0], [0, 0]),
        ("minimum", (3, 2), [0, 1], [0, 0]),
        ("sqrt", (0,), [np.inf], [-np.inf]),
        ("arcsin", (1,), [np.inf], [np.inf]),
        ("power", (0, 2), [0, 0], [2, 0]),
        ("power", (0, 1), [1, 0], [0, 0]),
        ("power", (0, 0), [0, 0], [0, 0]),
        ("power", (0, 0.5), [np.inf, 0], [-np.inf, 0]),
        ("power", (-2, 3), [12, np.nan], [-12, np.nan]),
        ("power", (-2, 2), [-4, np.nan], [2, np.nan]),
        ("reciprocal", (np.inf,), [0], [0]),
        ("tanh", (np.inf,), [0], [0]),
        ("sigmoid", (-np.inf,), [0], [0]),
        ("softplus", (np.inf,), [1], [0]),
        ("silu", (np.inf,), [1], [0]),
        ("silu", (-np.inf,), [0], [0]),
        ("erf", (-np.inf,), [0], [0]),
        ("gelu", (np.inf,), [1], [0]),
        ("gelu", (-np.inf,), [0], [0]),
        ("elu", (0,), [1], [1]),
        ("elu", (-np.inf,), [0], [0]),
        ("hardsigmoid", (-3,), [0], [0]),
        ("hardsigmoid", (3,), [0], [0]),
        ("arctan", (np.inf,), [0], [0]),
        ("exp", (-np.inf,), [0], [0]),
    ],
)
def test_choices(name, points, first, second):
    got = slopes(name, *points)
    np.testing.assert_array_equal(got[0], first)
    np.testing.assert_array_equal(got[1], second)


@pytest.mark.parametrize("name", ["relu", "abs", "maximum", "minimum"])
def test_nothing_passes_where_the_slope_is_0(name):
    x = np.array([-1.0, 0.0]) if name != "abs" else np.array([0.0, 0.0])
    other = {"maximum": [np.array([3.0, 3.0])], "minimum": [np.array([-3.0, -3.0])]}.get(name, [])
    gx, *_ = FUNCTIONS[name].backward(x, *other, np.array([np.nan, np.inf]))
    assert (gx == 0).all()


def test_slope_of_leaky_relu():
    x, gy = np.array([-2.0, 3.0]), np.ones(2)
    assert pyops.leaky_relu(x, negative_slope=0.25).tolist() == [-0.5, 3]
    assert pyops.leaky_relu.backward(x, gy, negative_slope=0.25)[0].tolist() == [0.25, 1]
    assert pyops.leaky_relu.backward(x, gy)[0].tolist() == [0.01, 1]
    with pytest.raises(TypeError, match=r"^leaky_relu: negative_slope: expected a number, got 'x'"):
        pyops.leaky_relu(x, negative_slope="x")
    with pytest.raises(ValueError, match="negative_slope: expected a finite number, got nan"):
        pyops.leaky_relu(x, negative_slope=np.nan)


def test_alpha_of_elu():
    x = np.array([-2.0, 0.0, 3.0])
    np.testing.assert_allclose(pyops.elu(x, alpha=0.5), [0.5 * np.expm1(-2), 0, 3], rtol=1e-15)
    (slope,) = pyops.elu.backward(x, np.ones(3), alpha=0.5)
    np.testing.assert_allclose(slope, [0.5 * np.exp(-2), 0.5, 1], rtol=1e-15)


# a, b, the gradient of a * b by b for gy = 1, and the gradient by a if it differs
KNOWN = {
    "row of a": ([[1, 2, 3]], [[4, 5, 6], [7, 8, 9], [1, 2, 3], [4, 5, 6]], [[1, 2, 3]] * 4),
    "row": (np.arange(1, 7).reshape(2, 3), [0.1, 0.2, 0.3], [5, 7, 9]),
    "batch": (np.arange(1, 13).reshape(2, 2, 3), [0.3, 0.2, 0.1], [22, 26, 30]),
    "matrices": (
        np.arange(1, 37).reshape(2, 2, 3, 3),
        np.arange(9).reshape(3, 3),
        [[58, 62, 66], [70, 74, 78], [82, 86, 90]],
    ),
    "wide": (
        np.arange(1, 25).reshape(2, 3, 4),
        np.arange(12).reshape(3, 4),
        [[14, 16, 18, 20], [22, 24, 26, 28], [30, 32, 34, 36]],
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", KNOWN)
def test_known_gradients_of_multiply(case, dtype):
    a, b, expected = (np.array(x, dtype) for x in KNOWN[case])
    one = np.ones(np.broadcast_shapes(a.shape, b.shape), dtype)
    ga, gb = pyops.multiply.backward(a, b, one)
    assert (gb == expected).all()
    if case == "row of a":
        assert ga.tolist() == [[16, 20, 24]]
    else:
        assert (ga == b).all()
        assert ga.shape == a.shape


def test_domains_have_functions():
    assert reference.DOMAINS.keys() <= FUNCTIONS.keys()
