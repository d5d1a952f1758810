"""Elementwise functions and their slopes, in complex-analytic NumPy."""

import numpy as np


def _step(x, negative):
    return np.where(x.real > 0, 1.0, negative)


def _larger(x, y):
    """Return which of two values is larger: 1, 1/2 or 0."""
    return np.heaviside((x - y).real, 0.5)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _erf(x):
    from scipy.special import erf  # the only dependency on scipy here

    return erf(x)


def _normal(x):
    """Return density and distribution function."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), (1 + _erf(x / np.sqrt(2))) / 2


def _gelu_slope(x):
    density, distribution = _normal(x)
    return distribution + x * density


# name: value, then one slope for each argument
FUNCTIONS = {
    "add": (lambda x, y: x + y, lambda x, y: x**0, lambda x, y: y**0),
    "subtract": (lambda x, y: x - y, lambda x, y: x**0, lambda x, y: -(y**0)),
    "multiply": (lambda x, y: x * y, lambda x, y: y, lambda x, y: x),
    "divide": (lambda x, y: x / y, lambda x, y: 1 / y, lambda x, y: -x / y**2),
    "power": (
        lambda x, y: np.exp(y * np.log(x)),
        lambda x, y: y * np.exp((y - 1) * np.log(x)),
        lambda x, y: np.log(x) * np.exp(y * np.log(x)),
    ),
    "maximum": (
        lambda x, y: np.where((x - y).real > 0, x, y),
        lambda x, y: _larger(x, y),
        lambda x, y: _larger(y, x),
    ),
    "minimum": (
        lambda x, y: np.where((x - y).real < 0, x, y),
        lambda x, y: _larger(y, x),
        lambda x, y: _larger(x, y),
    ),
    "negative": (lambda x: -x, lambda x: -(x**0)),
    "abs": (lambda x: x * np.sign(x.real), lambda x: np.sign(x.real)),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2),
    "sqrt": (np.sqrt, lambda x: 1 / (2 * np.sqrt(x))),
    "exp": (np.exp, np.exp),
    "log": (np.log, lambda x: 1 / x),
    "relu": (lambda x: x * _step(x, 0), lambda x: _step(x, 0)),
    "leaky_relu": (lambda x, s=0.01: x * _step(x, s), lambda x, s=0.01: _step(x, s)),
    "elu": (
        lambda x, a=1.0: np.where(x.real > 0, x, a * (np.exp(x) - 1)),
        lambda x, a=1.0: np.where(x.real > 0, 1, a * np.exp(x)),
    ),
    "hardsigmoid": (
        lambda x: np.where(abs(x.real) < 3, (x + 3) / 6, x.real > 0),
        lambda x: np.where(abs(x.real) < 3, 1 / 6, 0.0),
    ),
    "gelu": (lambda x: x * _normal(x)[1], _gelu_slope),
    "sigmoid": (_sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x)),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "softplus": (lambda x: np.log(1 + np.exp(x)), _sigmoid),
    "silu": (
        lambda x: x * _sigmoid(x),
        lambda x: _sigmoid(x) * (1 + x * _sigmoid(-x)),
    ),
    "sin": (np.sin, np.cos),
    "cos": (np.cos, lambda x: -np.sin(x)),
    "tan": (np.tan, lambda x: 1 / np.cos(x) ** 2),
    "arcsin": (np.arcsin, lambda x: 1 / np.sqrt(1 - x**2)),
    "arctan": (np.arctan, lambda x: 1 / (1 + x**2)),
    "sinh": (np.sinh, np.cosh),
    "cosh": (np.cosh, np.sinh),
    "erf": (_erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-(x**2))),
}

# Intervals of the magnitudes of random arguments, away from poles.
DOMAINS = {
    "power": (0.2, 3.0),
    "sqrt": (0.1, 4.0),
    "log": (0.1, 4.0),
    "divide": (0.3, 2.0),
    "reciprocal": (0.3, 2.0),
    "tan": (0.01, 1.3),
    "arcsin": (0.01, 0.95),
}


def forward(name, *inputs):
    return FUNCTIONS[name][0](*inputs)


def backward(name, *inputs_and_gy):
    *inputs, gy = inputs_and_gy
    slopes = FUNCTIONS[name][1:]
    return tuple(
        summed_to(gy * slope(*inputs), x.shape) for slope, x in zip(slopes, inputs, strict=True)
    )


def summed_to(array, shape):
    """Sum over the axes along which a shape was broadcast."""
    array = array.sum(tuple(range(array.ndim - len(shape))))
    return array.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)
