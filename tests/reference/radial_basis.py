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
    """Return the envelope and its slope, 0 outside of (0, 1).

    The polynomial over x has a triple zero at 1 and starts with 1, like (1 - x)^3 times the first
    terms of the series of (1 - x)^-3; expanded in powers of x, it would cancel near 1.
    """
    p = exponent + 1
    inside = (x.real > 0) & (x.real < 1)
    x = np.where(inside, x, 0.5)
    rest = 1 - x
    over = rest**3 * sum((k + 1) * (k + 2) // 2 * x**k for k in range(p))
    slope = -p * (p + 1) * (p + 2) / 2 * x ** (p - 1) * rest**2
    return inside * over / x, inside * (slope / x - over / x**2)
