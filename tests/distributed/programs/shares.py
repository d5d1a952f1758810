"""Shares of the ranks in a whole graph, which every rank has for comparison alone."""

import numpy as np

from pyops.distributed import Communicator


def cuts(rng, length, size):
    """Return the first row of each rank and the number of rows; some ranks have none."""
    inner = np.sort(rng.integers(0, length + 1, size - 1))
    if size > 2 and rng.random() < 0.3:
        inner[1] = inner[0]
    return np.array([0, *inner, length])


class Shares:
    """A distributed copy of a graph, and the rows of this rank in arrays of the whole graph."""

    def __init__(self, comm: Communicator, graph, rng):
        self.comm = comm
        ranges = {n: cuts(rng, getattr(graph, n), comm.size) for n in ("num_src", "num_dst")}
        own = {n: tuple(r[comm.rank : comm.rank + 2].tolist()) for n, r in ranges.items()}
        first, last = own["num_dst"]
        entries = np.flatnonzero((graph.dst >= first) & (graph.dst < last))
        self.graph = comm.graph(
            graph.src[entries], graph.dst[entries], owned=own["num_dst"], owned_src=own["num_src"]
        )
        self.rows = {n: np.arange(*r) for n, r in own.items()}
        self.rows |= {"num_entries": entries, "num_edges": entries}
        if graph._ids is not None:
            ids, rows = graph.edge_ids[entries], graph.num_edges
            self.graph = self.graph.with_edge_ids(ids, rows, replicated=True)
            del self.rows["num_edges"]

    def of(self, name, array):
        """Return the own rows of an array, whose first axis has this name."""
        if array is None or name not in self.rows:
            return array
        return np.ascontiguousarray(array[self.rows[name]])
