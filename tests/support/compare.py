"""Comparisons of tuples of arrays and None."""

import numpy as np


def assert_close(got, expected, tolerance, others=()):
    """Assert equality to a tolerance relative to the largest magnitude of each array.

    Results of cancellation, as the gradient of a softmax with respect to a shift, are compared with
    the magnitudes of the other results, or of `others`.
    """
    sizes = [np.abs(b).max(initial=0) for b in (*expected, *others) if b is not None]
    largest = max(sizes, default=0)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a is None) == (b is None), f"result {number}"
        if a is not None:
            assert a.shape == b.shape, f"result {number}"
            error, size = (np.abs(x).max(initial=0) for x in (a - b, b))
            size = max(size, 0.1 * largest)
            assert error <= tolerance * size, f"result {number}: {error:.2e} of {size:.2e}"


def assert_same(got, expected):
    """Assert bitwise equality."""
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a is None) == (b is None), f"result {number}"
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype), f"result {number}"
            assert a.tobytes() == b.tobytes(), f"result {number}: {np.abs(a - b).max():.2e} apart"


def inner(a, b):
    """Return the inner product of two tuples of arrays."""
    pairs = zip(a, b, strict=True)
    return sum(np.vdot(x, y) for x, y in pairs if x is not None and y is not None)


def norm(a):
    return np.sqrt(inner(a, a))
