"""Edge-to-edge aggregation of DimeNet++; the peers take a precomputed list of all triplets."""

import functools
import math

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.problem import normal

SPHERICAL, RADIAL, MIDDLE = 7, 6, 8
NOTE = "The peers take a list of all triplets. Dotted: from pairs to harmonics."
TURNS = {"forward": 5, "backward": 10}  # in- and out-degree of nodes that switch algorithms


@functools.lru_cache(maxsize=1)
def neighbours(nodes, edges):
    """Return the end nodes of the given number of edges, and their vectors.

    The edges are the nearest pairs of random points in a periodic box, in both directions.
    """
    points = np.random.default_rng(24).random((nodes, 3))
    tree = cKDTree(points, boxsize=1)
    near, radius = [], (3 / (4 * np.pi) * edges / nodes**2) ** (1 / 3)
    while len(near) < edges // 2:
        radius *= 1.02
        near = tree.query_pairs(radius, output_type="ndarray")
    vectors = points[near[:, 0]] - points[near[:, 1]]
    vectors -= np.round(vectors)
    nearest = np.argsort((vectors**2).sum(1), kind="stable")[: edges // 2]
    src, dst = np.concatenate([near[nearest], near[nearest, ::-1]]).T
    order = np.lexsort((src, dst))
    vectors = np.concatenate([vectors[nearest], -vectors[nearest]])
    return src[order], dst[order], vectors[order]


def ends(case, rng):
    return neighbours(case.nodes, case.edges)[:2]


def pairs(case, src, dst):
    """Return the pairs (e, f), f into the source of e, without pairs of an edge and its reverse."""
    order = np.argsort(dst, kind="stable")
    counts = np.bincount(dst, minlength=case.nodes)
    starts = np.cumsum(counts) - counts
    e = np.repeat(np.arange(len(src)), counts[src])
    turn = np.arange(len(e)) - np.repeat(np.cumsum(counts[src]) - counts[src], counts[src])
    f = order[starts[src[e]] + turn]
    kept = src[f] != dst[e]
    return {"pair_out": e[kept], "pair_in": f[kept]}


def inputs(case, rng):
    rows = SPHERICAL * RADIAL + case.width
    return {
        "vectors": neighbours(case.nodes, case.edges)[2].astype(case.dtype),
        "radial": normal(case, rng, case.edges, SPHERICAL * RADIAL),
        "embedding": normal(case, rng, case.edges, case.width),
        "weights": normal(case, rng, rows, MIDDLE) / np.sqrt(rows).astype(case.dtype),
    }


def output_shape(case):
    return case.edges, case.width


def _angular(c, stack):
    """Return Y_l0 by the recurrence of the Legendre polynomials."""
    p = [c**0, c]
    for degree in range(2, SPHERICAL):
        p.append(((2 * degree - 1) * c * p[-1] - (degree - 1) * p[-2]) / degree)
    return stack([math.sqrt((2 * n + 1) / (4 * math.pi)) * q for n, q in enumerate(p[:SPHERICAL])])


def in_torch(graph, vectors, radial, embedding, weights):
    import torch

    u = vectors / vectors.norm(dim=1, keepdim=True)
    out, into = graph.pair_out, graph.pair_in
    c = (u.index_select(0, out) * u.index_select(0, into)).sum(1)
    angular = _angular(c, lambda columns: torch.stack(columns, 1))
    part = radial.index_select(0, into).view(-1, SPHERICAL, RADIAL)
    basis = (part * angular[:, :, None]).reshape(len(c), -1)
    a, b = weights[: SPHERICAL * RADIAL], weights[SPHERICAL * RADIAL :]
    messages = embedding.index_select(0, into) * (basis @ a @ b.T)
    return torch.zeros_like(embedding).index_add_(0, out, messages)


def in_jax(graph, vectors, radial, embedding, weights):
    import jax

    u = vectors / jax.numpy.linalg.norm(vectors, axis=1, keepdims=True)
    out, into = graph.pair_out, graph.pair_in
    c = (u[out] * u[into]).sum(1)
    angular = _angular(c, lambda columns: jax.numpy.stack(columns, 1))
    part = radial[into].reshape(-1, SPHERICAL, RADIAL)
    basis = (part * angular[:, :, None]).reshape(len(c), -1)
    a, b = weights[: SPHERICAL * RADIAL], weights[SPHERICAL * RADIAL :]
    messages = embedding[into] * (basis @ a @ b.T)
    return jax.ops.segment_sum(messages, out, len(embedding), indices_are_sorted=True)


def in_pyops(case, graph):
    import pyops

    return pyops.dimenet_aggregate, (graph.packed,), {"num_spherical": SPHERICAL}


def multiply_adds(case):
    """Count those of the density: 2, 5, 15 sums over harmonics and channels, 1, 3, 8 times B."""
    sums = case.edges * SPHERICAL**2 * case.width
    layers = case.edges * SPHERICAL * MIDDLE * case.width
    return {
        "forward": 2 * sums + layers,
        "backward": 5 * sums + 3 * layers,
        "double_backward": 15 * sums + 8 * layers,
    }
