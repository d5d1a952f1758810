"""Bases of any condition, and with columns that depend on others."""

import numpy as np


def bases(rng, count, modes):
    """Yield bases with the condition of their independent columns, of length 1, or more."""
    basis = rng.standard_normal((count, modes))
    for condition in 1e3, 1e6, 1e10:
        u, _, v = np.linalg.svd(basis, full_matrices=False)
        yield u * np.logspace(0, -np.log10(condition), modes) @ v, condition
    copied = basis.copy()
    copied[:, 3] = copied[:, 1]
    copied[:, 5] = 0
    yield copied, 10.0  # two columns depend on others
    apart = np.zeros_like(basis)  # on most ranks most columns are zero
    for k in range(modes):
        apart[k * count // modes : (k + 1) * count // modes + 1, k] = 1 + rng.random()
    yield apart, 10.0
    summed = basis.copy()
    summed[:, 4] = summed[:, 0] - 3 * summed[:, 2]
    yield summed, 10.0
    yield basis * 10.0 ** rng.integers(-12, 12, modes), 10.0
    yield np.ones((count, modes)), 1.0
