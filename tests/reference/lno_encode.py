import numpy as np


def forward(u, poles):
    return u @ exponentials(poles, u.shape[1])


def backward(u, poles, gy):
    t, e = points(u.shape[1])[:, None], exponentials(poles, u.shape[1])
    return gy @ e.T, -((u @ (t * e)) * gy).sum(0)


def exponentials(poles, count):
    """Return exponentials, one row per point."""
    return np.exp(-points(count)[:, None] * poles)


def points(count):
    return np.linspace(0, 1, count)
