"""Activations alone: value, slope and curvature, by edges with one coordinate and one unit."""

import numpy as np
import pytest

import pyops
from pyops._call.operator import OPERATORS
from pyops._functions import ACTIVATIONS, SCORES

from ..reference.activations import EXACT

NAMES = [function.name for function in ACTIVATIONS]
OF_SCORES = [function.name for function in SCORES]
CHOICES = {
    name: op.signature.options["activation"].choices
    for name, op in OPERATORS.items()
    if "activation" in op.signature.options
}
FAR = [1e-45, 1e-38, 1e-20, 1e-8, 1e4, 1e10, 1e25, 3e38]
PLACES = np.concatenate([np.linspace(-120, 120, 24001), FAR, np.negative(FAR)])


@pytest.mark.parametrize("name", CHOICES)
def test_codes(name):
    """The kernels' codes are positions in their table, and among the choices of a declaration."""
    table = OF_SCORES if OPERATORS[name].signature.attention else NAMES
    assert [*CHOICES[name]] == table


def computed(activation, x):
    """Return value, slope and curvature at the points x, computed by the kernels."""
    sizes = {"hidden": 1, "in_features": 1, "out_features": 1, "activation": activation}
    coords, one = x[:, None], np.ones((len(x), 1), x.dtype)
    params = np.array([1, 0, 1, 0], x.dtype)
    value = pyops.gno_kernel(coords, params, **sizes)
    slope, _ = pyops.gno_kernel.backward(coords, params, one, **sizes)
    curvature, *_ = pyops.gno_kernel.double_backward(coords, params, one, one, None, **sizes)
    return [a[:, 0] for a in (value, slope, curvature)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", NAMES)
def test_everywhere(activation, dtype):
    x = PLACES.astype(dtype)
    with np.errstate(over="ignore"):
        exact = EXACT[activation](x.astype(np.float64))
    for got, expected in zip(computed(activation, x), exact, strict=True):
        bound = 32 * np.finfo(dtype).eps * (1 + abs(expected))  # 1 - s cancels if s is near 1
        assert (abs(got - expected) <= bound).all(), x[~(abs(got - expected) <= bound)]


@pytest.mark.parametrize("activation", ["silu", "gelu", "tanh"])
def test_beyond_the_squares(activation):
    """No intermediate infinity minus infinity occurs although the square of x overflows."""
    value, slope, curvature = computed(activation, np.array([1e200, -1e200]))
    assert value.tolist() == ([1, -1] if activation == "tanh" else [1e200, 0])
    assert slope.tolist() == ([0, 0] if activation == "tanh" else [1, 0])
    assert curvature.tolist() == [0, 0]


def test_relu_at_its_kink_and_at_infinity():
    x = np.array([0.0, -0.0, np.inf, -np.inf])
    value, slope, curvature = computed("relu", x)
    assert value.tolist() == [0, 0, np.inf, 0]
    assert slope.tolist() == [0, 0, 1, 0]
    assert curvature.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("activation", NAMES)
def test_nan(activation):
    for result in computed(activation, np.array([1.0, np.nan, 2.0])):
        assert np.isnan(result).tolist() == [False, True, False]
