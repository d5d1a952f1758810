"""Sines times the envelope of DimeNet."""

import numpy as np

from benchmarks.problem import normal

RADIAL = 6


def inputs(case, rng):
    distances = rng.uniform(0.2, 0.95, case.samples * case.nodes)
    frequencies = np.pi * np.arange(1, RADIAL + 1) + 0.1 * normal(case, rng, RADIAL)
    return {
        "distances": distances.astype(case.dtype),
        "frequencies": frequencies.astype(case.dtype),
    }


def output_shape(case):
    return case.samples * case.nodes, RADIAL


def envelope(x):
    return 1 / x - 28 * x**5 + 48 * x**6 - 21 * x**7


def in_torch(graph, distances, frequencies):
    import torch

    return envelope(distances)[:, None] * torch.sin(distances[:, None] * frequencies)


def in_jax(graph, distances, frequencies):
    import jax.numpy as jnp

    return envelope(distances)[:, None] * jnp.sin(distances[:, None] * frequencies)


def in_pyops(case, graph):
    import pyops

    return pyops.radial_basis, (), {}


def multiply_adds(case):
    count = case.samples * case.nodes * RADIAL
    return {"forward": 4 * count, "backward": 10 * count, "double_backward": 20 * count}
