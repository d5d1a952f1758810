"""`Communicator.radius_graph` against `pyops.radius_graph` of the points of all ranks."""

import sys

import numpy as np

import pyops
from pyops.distributed import Communicator

from .graphs import refused
from .shares import cuts

SKEW = np.array([[3.0, 0, 0], [0.7, 2.5, 0], [-0.4, 0.9, 2.8]])
CASES = {
    "open": {},
    "periodic": {"cell": SKEW},
    "slab": {"cell": SKEW, "pbc": [True, False, True]},
    "wire": {"cell": np.array([[2.0, 0, 0], [0, 0, 0], [0, 0, 0]]), "pbc": [True, False, False]},
    "small cell": {"cell": np.eye(3) * 0.6},
    "one cell": {"cell": SKEW, "batch": True},
    "cells": {"cell": np.stack([SKEW, 2 * np.eye(3), SKEW.T, np.eye(3)]), "batch": True},
    "directions": {"cell": SKEW, "pbc": [[True] * 3, [False] * 3] * 2, "batch": True},
    "batch": {"batch": True},
    "plane": {"dim": 2, "cell": SKEW[:2, :2], "pbc": [True, False]},
}


def compare_graphs(comm, rng, name, x, reach, options, ranges=None):
    """Compare a graph of points, by a function of this name, with that of one rank; return it."""
    options = dict(options)
    count = len(x)
    if "cell" in options:
        options["cell"] = options["cell"].astype(x.dtype)
    if options.pop("batch", False):
        options["batch"] = rng.integers(0, 4, count)
    ranges = cuts(rng, count, comm.size) if ranges is None else ranges
    own = slice(*ranges[comm.rank : comm.rank + 2].tolist())
    whole, *expected = getattr(pyops, name)(x, reach, **options)
    if "batch" in options:
        options["batch"] = options["batch"][own]
    graph, *found = getattr(comm, name)(x[own], reach, **options)
    rows = (whole.dst >= own.start) & (whole.dst < own.stop)
    numbers = graph.exchange(np.arange(own.start, own.stop))
    assert np.array_equal(numbers[graph.local.src], whole.src[rows])
    assert np.array_equal(graph.local.dst + own.start, whole.dst[rows])
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b[rows])  # rows of edges are in the order of destinations
    assert graph.num_ghosts == len(np.setdiff1d(whole.src[rows], np.arange(count)[own]))
    return graph, found


def compare(comm, rng, count, cutoff, dtype, options, away=0.0):
    options = dict(options)
    x = 3 * rng.random((count, options.pop("dim", 3))) - 0.5
    x[::2] += away
    x = x.astype(dtype)
    if rng.random() < 0.5:  # neighbours have near numbers
        x = x[np.argsort(x[:, 0])]
    return compare_graphs(comm, rng, "radius_graph", x, cutoff, options)


def same():
    """The same edges in the same order, vectors and offsets to the last bit, and reverses."""
    comm = Communicator()
    for number, (name, options) in enumerate(CASES.items()):
        rng = np.random.default_rng(number)
        for count, cutoff in ((0, 1.0), (3, 1.0), (60, 0.7), (60, 2.6), (200, 0.3)):
            cutoff = min(cutoff, 1.3) if name == "small cell" else cutoff
            for dtype in np.float64, np.float32:
                compare(comm, rng, count, cutoff, dtype, options)
    far_away = [1e7, 0, 0], [0, 1e8, 1e8]  # the offsets of several images are the same number
    for away in far_away:
        compare(comm, rng, 60, 1.3, np.float32, {"cell": np.eye(3) * 0.6}, away)
    far = np.stack([1e9 + 0.7 * np.arange(60.0), np.zeros(60), np.zeros(60)], 1)  # rounded
    first, last = (60 * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    whole, *_ = pyops.radius_graph(far, 0.7)
    graph, *_ = comm.radius_graph(far[first:last], 0.7)
    assert graph.num_edges == ((whole.dst >= first) & (whole.dst < last)).sum()
    copies = np.ones((4 * (comm.rank + 1), 3))  # all points at one place
    graph, vectors, *_ = comm.radius_graph(copies, 0.5)
    total = 2 * comm.size * (comm.size + 1)
    assert graph.num_edges == len(copies) * (total - 1)
    assert not vectors.any()


def chained():
    """Operators on pairs of edges take its reverses."""
    comm = Communicator()
    rng = np.random.default_rng(5)
    x = 3 * rng.random((40, 3))
    ranges = cuts(rng, 40, comm.size)
    own = slice(*ranges[comm.rank : comm.rank + 2].tolist())
    whole, _, _, reverse = pyops.radius_graph(x, 0.9, cell=3 * np.eye(3))
    graph, _, _, numbers = comm.radius_graph(x[own], 0.9, cell=3 * np.eye(3))
    rows = (whole.dst >= own.start) & (whole.dst < own.stop)
    e = rng.standard_normal((whole.num_edges, 3))
    options = {"exclude": "image"}
    expected = pyops.edge_to_edge(whole, e, reverse=reverse, **options)
    got = pyops.edge_to_edge(graph, e[rows], reverse=numbers, **options)
    assert np.array_equal(got, expected[rows])


def messages():
    """A rank gets positions of points near its own alone."""
    comm = Communicator()
    rng = np.random.default_rng(comm.rank)
    x = rng.random((300, 3)) + 10 * comm.rank  # blocks far from each other
    seen = []
    engine = type(comm._engine)
    right = engine.push

    def counted(self, rows, counts):
        found = right(self, rows, counts)
        if rows.shape[1] == 5:
            seen.append(len(found[0]))
        return found

    engine.push = counted
    graph, *_ = comm.radius_graph(x, 0.2)
    assert seen == [0]
    assert graph.num_ghosts == 0
    x[:, 0] = rng.random(300) + comm.rank  # neighbours along a line
    comm.radius_graph(x, 0.1)
    engine.push = right
    assert seen[1] <= 300


def refusals():
    comm = Communicator()
    last = comm.size - 1
    mine = comm.rank == last
    at = f"rank {last}: " if last else ""
    x = np.random.default_rng(comm.rank).random((5, 3))
    shape = "expected shape (num_nodes, 3), or with 1 or 2 for other dimensions, got (5, 0)"
    with refused(ValueError, f"{at}radius_graph: positions: {shape}"):
        comm.radius_graph(x[:, :0] if mine else x, 0.5)
    with refused(TypeError, f"{at}radius_graph: positions: expected a NumPy array, got list"):
        comm.radius_graph([1.0] if mine else x, 0.5)
    with refused(ValueError, f"{at}Communicator.radius_graph: positions: expected finite"):
        comm.radius_graph(x * np.nan if mine else x, 0.5)
    with refused(ValueError, f"{at}radius_graph: cutoff: expected a positive number"):
        comm.radius_graph(x, -1.0 if mine else 0.5)
    with refused(ValueError, f"{at}Communicator.radius_graph: batch: expected num_nodes=5 numbers"):
        comm.radius_graph(x, 0.5, batch=np.zeros(5 - mine, int))
    with refused(ValueError, "cell: expected shape (3, 3) or (num_graphs=3, 3, 3)"):
        comm.radius_graph(x, 0.5, batch=np.full(5, 2), cell=np.stack([np.eye(3)] * 2))
    if last:
        different = f"rank {last}: Communicator.radius_graph: expected the call of rank 0"
        with refused(ValueError, different):
            comm.radius_graph(x, 0.6 if mine else 0.5)
        with refused(ValueError, different):
            comm.radius_graph(x, 0.5, cell=np.eye(3) * (1 + mine))
        with refused(ValueError, different):
            comm.radius_graph(x.astype("f") if mine else x, 0.5)
        with refused(ValueError, different):
            comm.radius_graph(x[:, :2] if mine else x, 0.5)
    assert comm.radius_graph(x, 0.5)[0].num_dst == 5


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
