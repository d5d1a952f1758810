"""The mesh of examples/ranks.py and the fields on it, in files."""

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import Delaunay

FIELDS = 4
HOLES = ((0.45, 0.6), 0.2), ((1.1, 0.3), 0.15), ((1.6, 0.65), 0.18)
STEPS, RATE, DIFFUSION = 6, 0.3, 0.6


def write_mesh(folder, nodes, seed=0):
    """Write points, the edges into each node, and fields before and after; return sizes.

    Nodes are numbered by columns of a plate with three holes, as a mesh generator may do.
    """
    rng = np.random.default_rng(seed)
    points = draw_points(rng, nodes)
    src, offsets = neighbours(points)
    before = np.stack([draw_field(rng, points) for _ in range(FIELDS)])
    arrays = {"points": points, "src": src, "offsets": offsets}
    arrays |= {"before": before, "after": advance(src, offsets, before)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    size = sum(array.nbytes for array in arrays.values()) / 1e6
    return {"nodes": nodes, "edges": len(src), "megabytes": size}


def draw_points(rng, nodes):
    """Points of [0, 2] x [0, 1] about as far from each other, outside of the holes."""
    points, pitch = np.empty((0, 2)), np.sqrt(1.7 / nodes)
    while len(points) < nodes:
        pitch *= 0.995
        axes = (np.arange(pitch / 2, most, pitch) for most in (2, 1))
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        points += rng.uniform(-0.3, 0.3, points.shape) * pitch
        for centre, radius in HOLES:
            points = points[((points - centre) ** 2).sum(1) > radius**2]
    kept = points[rng.permutation(len(points))[:nodes]]
    columns = np.floor(kept[:, 0] / pitch)
    return kept[np.lexsort((kept[:, 1], columns))]


def neighbours(points):
    """Sources of the edges into each node, and where those of each node begin."""
    pairs = Delaunay(points).simplices
    ends = np.concatenate([pairs[:, [i, j]] for i in range(3) for j in range(3) if i != j])
    longest = 4 * np.sqrt(1.7 / len(points))
    near = ((points[ends[:, 0]] - points[ends[:, 1]]) ** 2).sum(1) < longest**2
    keys = np.unique(ends[near, 1].astype(np.int64) * len(points) + ends[near, 0])
    counts = np.bincount(keys // len(points), minlength=len(points))
    return keys % len(points), np.concatenate([[0], np.cumsum(counts)])


def draw_field(rng, points, modes=40):
    """Sum of waves a few nodes to many nodes long."""
    shortest = 12 * np.sqrt(1.7 / len(points))
    lengths = shortest * 8 ** rng.random(modes)
    angles, phases = 2 * np.pi * rng.random((2, modes))
    waves = 2 * np.pi / lengths * np.stack([np.cos(angles), np.sin(angles)])
    field = np.cos(points @ waves + phases) @ rng.standard_normal(modes)
    return 1.2 * field / abs(field).max()


def advance(src, offsets, fields):
    """Fields after some explicit steps of the Allen-Cahn equation on the graph."""
    degrees = np.maximum(np.diff(offsets), 1)
    mean = csr_array((np.repeat(1 / degrees, np.diff(offsets)), src, offsets))
    u = fields.T
    for _ in range(STEPS):
        u = u + RATE * (DIFFUSION * (mean @ u - u) + u - u**3)
    return np.ascontiguousarray(u.T)
