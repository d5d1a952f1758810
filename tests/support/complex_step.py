"""Derivatives of analytic functions by complex step, exact to rounding: Im f(x + i step) / step."""

import numpy as np

STEP = 1e-30


def derivative(function, arrays, directions):
    """Return the derivatives of the returned arrays along directions; None is zero."""
    moved = [
        a if a is None or d is None else a + 1j * STEP * d
        for a, d in zip(arrays, directions, strict=True)
    ]
    return tuple(None if r is None else np.imag(r) / STEP for r in function(*moved))


def gradient(function, array):
    """Return the gradient of a scalar function with respect to an array, element by element."""
    result = np.zeros(array.shape)
    moved = array.astype(complex)
    for index in np.ndindex(array.shape):
        moved[index] += 1j * STEP
        result[index] = np.imag(function(moved)) / STEP
        moved[index] = array[index]
    return result
