import numpy as np


def forward(distances, frequencies, *, exponent):
    u, _ = envelope(distances, exponent)
    return u[:, None] * np.sin(distances[:, None] * frequencies)


def backward(distances, frequencies, gy, *, exponent):
    x, w = distances[:, None], frequencies
    u, slope = (a[:, None] for a in envelope(distances, exponent))
    gx = (gy * (slope * np.sin(w * x) + u * w * np.cos(w * x))).sum(1)
    return gx, (gy * u * x * np.cos(w * x)).sum(0)


def envelope(x, exponent):
    """The envelope and its slope, 0 outside of (0, 1)."""
    p = exponent + 1
    inside = (x.real > 0) & (x.real < 1)
    x = np.where(inside, x, 0.5)
    a, b, c = -(p + 1) * (p + 2) / 2, p * (p + 2), -p * (p + 1) / 2
    u = 1 / x + a * x ** (p - 1) + b * x**p + c * x ** (p + 1)
    slope = -1 / x**2 + a * (p - 1) * x ** (p - 2) + b * p * x ** (p - 1) + c * (p + 1) * x**p
    return inside * u, inside * slope
