"""Spherical Bessel functions times the envelope of DimeNet, by the recurrence of closed forms."""

import functools
import itertools

import numpy as np

from benchmarks.operators.radial_basis import envelope

SPHERICAL, RADIAL = 7, 6


def inputs(case, rng):
    """Return distances at which the recurrence of the peers is accurate in float32."""
    return {"distances": rng.uniform(0.6, 0.95, case.samples * case.nodes).astype(case.dtype)}


def output_shape(case):
    return case.samples * case.nodes, SPHERICAL * RADIAL


def constants(case, rng, **graph):
    """Return zeros, found between those of the degree below, and norms."""
    from scipy.optimize import brentq
    from scipy.special import spherical_jn

    rows = [np.pi * np.arange(1, RADIAL + SPHERICAL + 1)]
    for degree in range(1, SPHERICAL):
        ends = rows[-1]
        function = functools.partial(spherical_jn, degree)
        rows.append(np.array([brentq(function, a, b) for a, b in itertools.pairwise(ends)]))
    zeros = np.stack([row[:RADIAL] for row in rows])
    norms = [np.sqrt(2) / abs(spherical_jn(d + 1, z)) for d, z in enumerate(zeros)]
    return {"zeros": zeros.astype(case.dtype), "norms": np.stack(norms).astype(case.dtype)}


def _columns(library, graph, distances):
    columns = []
    for degree in range(SPHERICAL):
        t = distances[:, None] * graph.zeros[degree]
        before, here = library.cos(t) / t, library.sin(t) / t
        for k in range(degree):
            before, here = here, (2 * k + 1) / t * here - before
        columns.append(here * graph.norms[degree])
    return columns


def in_torch(graph, distances):
    import torch

    return envelope(distances)[:, None] * torch.cat(_columns(torch, graph, distances), 1)


def in_jax(graph, distances):
    import jax.numpy as jnp

    return envelope(distances)[:, None] * jnp.concatenate(_columns(jnp, graph, distances), 1)


def in_pyops(case, graph):
    import pyops

    return pyops.spherical_basis, (), {}


def multiply_adds(case):
    count = case.samples * case.nodes * SPHERICAL * RADIAL
    return {"forward": 20 * count, "backward": 60 * count, "double_backward": 60 * count}
