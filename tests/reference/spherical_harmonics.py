from math import factorial

import numpy as np


def forward(vectors, *, max_degree):
    return np.stack([y for y, _ in _harmonics(vectors, max_degree)], 1)


def backward(vectors, gy, *, max_degree):
    gu = sum(gy[:, k, None] * slope for k, (_, slope) in enumerate(_harmonics(vectors, max_degree)))
    u, length = directions(vectors)
    along = (u * gu).sum(1, keepdims=True)
    return ((gu - u * along) / length,)


def directions(vectors, bound=False):
    """Return unit vectors and lengths, or bounds of their derivatives' terms; zero stays zero."""
    squares = (vectors * vectors).sum(1, keepdims=True)
    if bound:  # the first two derivatives of 1 / length have the opposite sign
        squares = 2 * squares.real - squares
    length = np.sqrt(squares + (squares == 0))
    return vectors / length, length


def _harmonics(vectors, max_degree):
    """Yield each harmonic, a polynomial of the direction, and its gradient by the direction.

    Y_lm is the m-th derivative of the Legendre polynomial of z times the real or the imaginary part
    of (x + iy)^m, with explicit coefficients.
    """
    x, y, z = directions(vectors)[0].T
    for degree in range(max_degree + 1):
        legendre = np.polynomial.Legendre.basis(degree).convert(kind=np.polynomial.Polynomial)
        for m in range(-degree, degree + 1):
            order = abs(m)
            size = (2 * degree + 1) / (4 * np.pi) * (1 if m == 0 else 2)
            size = np.sqrt(size * factorial(degree - order) / factorial(degree + order))
            p, slope = (legendre.deriv(n).coef if n else legendre.coef for n in (order, order + 1))
            p, slope = (np.polynomial.Polynomial(size * c)(z) for c in (p, slope))
            t, tx, ty = _power(x, y, order, m < 0)
            yield p * t, np.stack([p * tx, p * ty, slope * t], 1)


def _power(x, y, order, imaginary):
    """Return Re or Im (x + iy)^order by the binomial theorem, and its derivatives by x and y."""
    value, by_x, by_y = 0 * x, 0 * x, 0 * x
    for k in range(order + 1):
        if k % 2 != imaginary:
            continue
        factor = (-1) ** (k // 2) * factorial(order) / factorial(k) / factorial(order - k)
        value = value + factor * x ** (order - k) * y**k
        if k < order:
            by_x = by_x + factor * (order - k) * x ** (order - k - 1) * y**k
        if k > 0:
            by_y = by_y + factor * k * x ** (order - k) * y ** (k - 1)
    return value, by_x, by_y
