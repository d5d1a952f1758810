"""`Communicator.knn_graph` against `pyops.knn_graph` of the points of all ranks."""

import sys

import numpy as np

from pyops.distributed import Communicator

from .graphs import refused
from .neighbours import CASES, compare_graphs


def compare(comm, rng, x, nearest, options, *, ranges=None):
    compare_graphs(comm, rng, "knn_graph", x, nearest, options, ranges)


def same():
    """The same edges in the same order, vectors and offsets to the last bit."""
    comm = Communicator()
    for number, (name, options) in enumerate(CASES.items()):
        rng = np.random.default_rng(number)
        options = dict(options)
        dim = options.pop("dim", 3)
        for count, nearest in ((0, 2), (1, 3), (3, 5), (60, 1), (60, 9), (61, 70), (200, 4)):
            nearest = min(nearest, 9) if name == "small cell" else nearest
            for dtype in np.float64, np.float32:
                x = (3 * rng.random((count, dim)) - 0.5).astype(dtype)
                if rng.random() < 0.5:  # neighbours have near numbers
                    x = x[np.argsort(x[:, 0])]
                compare(comm, rng, x, nearest, options)
    for dim in 1, 2:
        x = np.random.default_rng(dim).random((50, dim))
        compare(comm, np.random.default_rng(dim), x, 6, {})


def ties():
    """Of points at equal distances, those that one rank would choose: a lattice, and copies."""
    comm = Communicator()
    rng = np.random.default_rng(3)
    lattice = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), -1).reshape(-1, 3)
    for x in lattice, rng.permutation(lattice), np.repeat(lattice[::7], 5, 0), np.ones((13, 3)):
        for nearest in 1, 5, 14:
            compare(comm, rng, x, nearest, {})
            if len(np.unique(x, axis=0)) > 1:
                compare(comm, rng, x, nearest, {"cell": 4 * np.eye(3)})
    far_away = lattice * 0.3 + [1e8, -1e8, 0]  # rounded
    compare(comm, rng, far_away, 7, {"cell": 1.2 * np.eye(3)})
    compare(comm, rng, far_away.astype("f"), 7, {})
    compare(comm, rng, lattice * 1e-12, 7, {})


def uneven():
    """Ranks with fewer points than neighbours, or none, all points on one rank, dense clusters."""
    comm = Communicator()
    rng = np.random.default_rng(4)
    x = rng.random((40, 3))
    for ranges in (
        np.array([0] + [40] * comm.size),
        np.array([0] * comm.size + [40]),
        np.array([*range(comm.size), 40]),
    ):
        compare(comm, rng, x, 5, {}, ranges=ranges)
        compare(comm, rng, x, 5, {"batch": True, "cell": np.eye(3)}, ranges=ranges)
    clusters = 1e-4 * rng.standard_normal((80, 3)) + rng.integers(0, 3, (80, 1))
    compare(comm, rng, clusters, 20, {})
    compare(comm, rng, np.sort(clusters, 0), 31, {"cell": 3 * np.eye(3)})


def messages():
    """A rank gets positions of points that may be nearest alone."""
    comm = Communicator()
    rng = np.random.default_rng(comm.rank)
    seen = []
    engine = type(comm._engine)
    right = engine.push

    def counted(self, rows, counts):
        found = right(self, rows, counts)
        if rows.shape[1] in (5, 6):
            seen.append(len(found[0]))
        return found

    engine.push = counted
    comm.knn_graph(rng.random((300, 3)) + 10 * comm.rank, 8)  # blocks far from each other
    assert seen == [0, 0]
    x = rng.random((300, 1)) + comm.rank  # neighbours along a line
    graph, *_ = comm.knn_graph(x, 3)
    engine.push = right
    assert seen[2] <= 12
    assert graph.num_ghosts <= seen[3] <= 12


def refusals():
    comm = Communicator()
    last = comm.size - 1
    mine = comm.rank == last
    at = f"rank {last}: " if last else ""
    x = np.random.default_rng(comm.rank).random((5, 3))
    with refused(TypeError, f"{at}knn_graph: positions: expected a NumPy array, got list"):
        comm.knn_graph([1.0] if mine else x, 2)
    with refused(ValueError, f"{at}knn_graph: nearest: expected at least 1, got 0"):
        comm.knn_graph(x, 0 if mine else 2)
    with refused(ValueError, f"{at}Communicator.knn_graph: positions: expected finite"):
        comm.knn_graph(x * np.inf if mine else x, 2)
    with refused(ValueError, f"{at}Communicator.knn_graph: positions: expected numbers up to"):
        comm.knn_graph(x * 1e200 if mine else x, 2)
    with refused(ValueError, f"{at}Communicator.knn_graph: batch: expected num_nodes=5 numbers"):
        comm.knn_graph(x, 2, batch=np.zeros(5 - mine, int))
    if last:
        with refused(ValueError, f"rank {last}: Communicator.knn_graph: expected the call of"):
            comm.knn_graph(x, 3 if mine else 2)
        with refused(ValueError, f"rank {last}: Communicator.knn_graph: expected the call of"):
            comm.knn_graph(x, 2, cell=np.eye(3) * (1 + mine))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
