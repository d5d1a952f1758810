"""Activations of hidden layers."""

import numpy as np


def _sigmoid(z):
    return 1 / (1 + np.exp(-z))


def _cdf(z):
    from scipy.special import erf  # the only dependency on scipy here

    return (1 + erf(z / np.sqrt(2))) / 2


def _density(z):
    return np.exp(-z * z / 2) / np.sqrt(2 * np.pi)


# Value and slope, complex-analytic.
ACTIVATIONS = {
    "relu": (lambda z: z * (z.real > 0), lambda z: 1.0 * (z.real > 0)),
    "silu": (lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * (1 - _sigmoid(z)))),
    "gelu": (lambda z: z * _cdf(z), lambda z: _cdf(z) + z * _density(z)),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) * np.tanh(z)),
    # Bounds of the magnitudes of smooth activations for z >= 0: |z|, and 1 for slope and curvature.
    "bound": (lambda z: z, lambda z: 1 + z - z.real),
}


def _relu(x):
    return np.maximum(x, 0), 1.0 * (x > 0), 0 * x


def _silu(x):
    from scipy.special import expit

    s, r = expit(x), expit(-x)
    return x * s, s + x * s * r, s * r * (2 + x * (r - s))


def _gelu(x):
    from scipy.special import ndtr

    density = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return x * ndtr(x), ndtr(x) + x * density, density * (2 - x * x)


def _tanh(x):
    t, slope = np.tanh(x), 1 / np.cosh(x) ** 2
    return t, slope, -2 * t * slope


# Value, slope and curvature of real numbers, accurate everywhere.
EXACT = {"relu": _relu, "silu": _silu, "gelu": _gelu, "tanh": _tanh}
