import numpy as np


def forward(u, poles, frequencies=None):
    return u @ exponentials(poles, frequencies, u.shape[1])


def backward(u, poles, frequencies, gy):
    e = exponentials(poles, frequencies, u.shape[1])
    return gy @ e.T, *by_poles(u, gy, poles, frequencies)


def by_poles(a, b, poles, frequencies):
    """Return the gradients of sum a^T E b by the poles and the frequencies."""
    t, e = points(a.shape[1])[:, None], exponentials(poles, frequencies, a.shape[1])
    gradient = -((a @ (t * e)) * b).sum(0)
    if frequencies is None:
        return gradient, None
    conjugate = exponentials(poles, -frequencies, a.shape[1])
    return gradient, ((a @ (t * conjugate)) * b).sum(0)


def exponentials(poles, frequencies, count):
    """Return exponentials, times oscillations if there are frequencies, one row per point."""
    t = points(count)[:, None]
    decaying = np.exp(-t * poles)
    if frequencies is None:
        return decaying
    return decaying * (np.cos(t * frequencies) + np.sin(t * frequencies))


def points(count):
    return np.linspace(0, 1, count)
