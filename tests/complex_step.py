"""Derivatives of analytic functions, exact to rounding: Im f(x + i step) / step."""

import numpy as np

STEP = 1e-30


def derivative(function, arrays, directions):
    """The derivatives of the arrays that a function returns, along directions; None is zero."""
    moved = [
        a if a is None or d is None else a + 1j * STEP * d
        for a, d in zip(arrays, directions, strict=True)
    ]
    return tuple(None if r is None else np.imag(r) / STEP for r in function(*moved))


def gradient(function, array):
    """The gradient of a function with one value by an array, element by element."""
    result = np.zeros(array.shape)
    moved = array.astype(complex)
    for index in np.ndindex(array.shape):
        moved[index] += 1j * STEP
        result[index] = np.imag(function(moved)) / STEP
        moved[index] = array[index]
    return result
