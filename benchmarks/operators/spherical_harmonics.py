"""Real spherical harmonics up to degree 6."""

import math

from benchmarks.problem import normal

DEGREE = 6


def inputs(case, rng):
    return {"vectors": normal(case, rng, case.samples * case.nodes, 3)}


def output_shape(case):
    return case.samples * case.nodes, (DEGREE + 1) ** 2


def _columns(x, y, z):
    """Return the harmonics by recurrence over m, then l, normalised on the way."""
    columns = {}
    diagonal, cosine, sine = math.sqrt(1 / (4 * math.pi)), x**0, 0 * x
    for m in range(DEGREE + 1):
        if m:
            diagonal *= math.sqrt(3 if m == 1 else (2 * m + 1) / (2 * m))
            cosine, sine = x * cosine - y * sine, x * sine + y * cosine
        p, before = diagonal * x**0, 0 * x
        for n in range(m, DEGREE + 1):
            if n > m:
                up = math.sqrt((4 * n * n - 1) / (n * n - m * m))
                down = 0.0
                if n > m + 1:
                    down = ((n - 1) ** 2 - m * m) * (2 * n + 1) / ((2 * n - 3) * (n * n - m * m))
                p, before = up * z * p - math.sqrt(down) * before, p
            columns[n, m] = p * cosine
            if m:
                columns[n, -m] = p * sine
    return [columns[key] for key in sorted(columns)]


def in_torch(graph, vectors):
    import torch

    u = vectors / vectors.norm(dim=1, keepdim=True)
    return torch.stack(_columns(*u.unbind(1)), 1)


def in_jax(graph, vectors):
    import jax.numpy as jnp

    u = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return jnp.stack(_columns(*u.T), 1)


def in_pyops(case, graph):
    import pyops

    return pyops.spherical_harmonics, (), {"max_degree": DEGREE}


def multiply_adds(case):
    count = case.samples * case.nodes * (DEGREE + 1) ** 2
    return {"forward": 2 * count, "backward": 8 * count, "double_backward": 20 * count}
