import functools
import itertools

import numpy as np
import pytest

from .radial_basis import envelope

brentq = pytest.importorskip("scipy.optimize").brentq
spherical_jn = pytest.importorskip("scipy.special").spherical_jn


def forward(distances, *, num_spherical, num_radial, exponent):
    u, _ = envelope(distances, exponent)
    terms = _terms(distances, num_spherical, num_radial)
    return np.stack([u * norm * j for norm, _, j, _ in terms], 1)


def backward(distances, gy, *, num_spherical, num_radial, exponent):
    u, slope = envelope(distances, exponent)
    terms = _terms(distances, num_spherical, num_radial)
    columns = [norm * (slope * j + u * z * by_t) for norm, z, j, by_t in terms]
    return ((gy * np.stack(columns, 1)).sum(1),)


def _terms(x, num_spherical, num_radial):
    """Yield norm, zero, j_l(z x) and its slope per column; Taylor expansion if x is complex."""
    for degree in range(num_spherical):
        for zero in zeros(degree, num_radial):
            norm = np.sqrt(2) / abs(spherical_jn(degree + 1, zero))
            t = zero * x
            j, slope = (spherical_jn(degree, t.real, derivative=d) for d in (False, True))
            if np.iscomplexobj(t):
                j, slope = j + 1j * t.imag * slope, slope + 1j * t.imag * _curvature(degree, t.real)
            yield norm, zero, j, slope


def _curvature(degree, t):
    """Return j'' by j' = (l j_{l-1} - (l+1) j_{l+1}) / (2l+1), applied twice."""
    below = degree * spherical_jn(max(degree - 1, 0), t, derivative=True)
    above = (degree + 1) * spherical_jn(degree + 1, t, derivative=True)
    return (below - above) / (2 * degree + 1)


@functools.cache
def zeros(degree, count):
    """Return the first positive zeros of j_l, which interlace with those of j_{l-1}."""
    if degree == 0:
        return tuple(np.pi * n for n in range(1, count + 1))
    ends = zeros(degree - 1, count + 1)
    return tuple(
        brentq(lambda t: spherical_jn(degree, t), a, b, xtol=1e-15, rtol=1e-15)
        for a, b in itertools.pairwise(ends)
    )
