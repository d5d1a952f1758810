"""Activations: value and slope."""

import numpy as np


def _sigmoid(z):
    return 1 / (1 + np.exp(-z))


def _cdf(z):
    from scipy.special import erf  # the only dependency on scipy here

    return (1 + erf(z / np.sqrt(2))) / 2


def _density(z):
    return np.exp(-z * z / 2) / np.sqrt(2 * np.pi)


ACTIVATIONS = {
    "relu": (lambda z: z * (z.real > 0), lambda z: 1.0 * (z.real > 0)),
    "silu": (lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * (1 - _sigmoid(z)))),
    "gelu": (lambda z: z * _cdf(z), lambda z: _cdf(z) + z * _density(z)),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) * np.tanh(z)),
    # Bounds of the magnitudes of smooth activations for z >= 0: |z|, and 1 for slope and curvature.
    "bound": (lambda z: z, lambda z: 1 + z - z.real),
}
