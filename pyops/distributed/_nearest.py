"""Nearest neighbours of points that are distributed over ranks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .._neighbour_search import Parts, Search
from ..neighbours import knn_graph
from ._neighbours import distributed_points, lattice_of, pushed

if TYPE_CHECKING:
    from .._neighbour_search import Neighbours
    from ._communicator import Communicator
    from ._graph import DistributedGraph
    from ._mpi import Counts, Engine, Values
    from ._neighbours import Points

CALLER = "Communicator.knn_graph"
_EPS = float(np.finfo(np.float64).eps)


def distributed_knn_graph(
    comm: Communicator,
    positions: Values,
    nearest: int,
    cell: Values | None,
    pbc: npt.ArrayLike | None,
    batch: npt.ArrayLike | None,
) -> tuple[DistributedGraph, Values, Values]:
    """See `Communicator.knn_graph`.

    The nearest points of all ranks are among the nearest of each rank, so one exchange suffices: a
    rank sends each point, with the distance of its farthest own neighbour, to the ranks that may
    have points within this distance, and these return the points that are nearest there.
    """
    search = functools.partial(knn_graph, nearest=nearest, cell=cell, pbc=pbc)
    points = distributed_points(comm, CALLER, search, positions, cell, pbc, batch)
    engine, rank = comm._engine, comm.rank
    first, last = points.ranges[rank : rank + 2].tolist()
    boxes = _all_boxes(engine, _own_boxes(points))
    counts = _counts(points, points.owner, nearest, *boxes.sizes())
    radius = comm._together(CALLER, lambda: _farthest(points, counts, nearest))
    queries, to = _queries(points, boxes, radius, rank)
    queries = pushed(engine, queries, to)
    largest = -float(engine.min(np.array([-abs(points.x).max(initial=0)]))[0])
    found_here = comm._together(CALLER, lambda: _answers(points, queries, nearest, largest))
    rows = np.concatenate(
        [np.arange(first, last)[:, None], points.owner[:, None], points.x.view(np.int64)], 1
    )
    ghosts = pushed(engine, rows[found_here[:, 0]], found_here[:, 1])
    ghosts = ghosts[np.argsort(ghosts[:, 0])]
    below = int(np.searchsorted(ghosts[:, 0], first))
    table = np.concatenate([ghosts[:below], rows, ghosts[below:]])
    wanted = np.zeros(len(table), np.int64)
    wanted[below : below + last - first] = counts

    def find() -> Neighbours:
        x = np.ascontiguousarray(table[:, 2:]).view(np.float64)
        parts = Parts(vectors=True, offsets=cell is not None)
        return _search(points, x, table[:, 1]).nearest(wanted, parts)

    found = comm._together(CALLER, find)
    numbers = table[:, 0]
    graph = comm.graph(numbers[found.src], numbers[found.dst], owned=(first, last))
    dim, dtype = positions.shape[1], positions.dtype.newbyteorder("=")
    vectors, offsets = (
        np.ascontiguousarray(a[:, :dim], dtype) for a in (found.vectors, found.offsets)
    )
    return graph, vectors, offsets


class _Boxes(NamedTuple):
    """The points of each rank in each graph: their number and extent in units of the cell."""

    rank: Counts
    graph: Counts
    number: Counts
    low: Values
    high: Values

    def sizes(self) -> tuple[Counts, Counts]:
        """Return the graphs that have points, and how many."""
        graphs, where = np.unique(self.graph, return_inverse=True)
        return graphs, np.bincount(where, self.number, len(graphs)).astype(np.int64)


def _own_boxes(points: Points) -> Counts:
    """Return a row for each graph with own points: graph, number, the bits of the extent."""
    order = np.argsort(points.owner, kind="stable")
    graphs, starts, counts = np.unique(points.owner[order], return_index=True, return_counts=True)
    place = lattice_of(points, points.x, points.owner, np.zeros(len(points.x))).place[order]
    if len(graphs) == 0:
        return np.empty((0, 8), np.int64)
    extent = np.concatenate(
        [np.minimum.reduceat(place, starts), np.maximum.reduceat(place, starts)], 1
    )
    return np.concatenate([graphs[:, None], counts[:, None], extent.view(np.int64)], 1)


def _all_boxes(engine: Engine, own: Counts) -> _Boxes:
    rows, counts = engine.rows(own)
    extent = np.ascontiguousarray(rows[:, 2:]).view(np.float64)
    ranks = np.repeat(np.arange(engine.size), counts)
    return _Boxes(ranks, rows[:, 0], rows[:, 1], extent[:, :3], extent[:, 3:])


def _counts(
    points: Points, owner: Counts, nearest: int, graphs: Counts, sizes: Counts, itself: int = 1
) -> Counts:
    """Return the number of neighbours of points of the graphs `owner`, given the sizes of these.

    Without periodic directions a graph has `itself` fewer neighbours than points.
    """
    found = np.full(len(owner), nearest, np.int64)
    alone = ~points.periodic[np.minimum(owner, len(points.cells) - 1)].any(1)
    others = sizes[np.searchsorted(graphs, owner[alone])] - itself
    found[alone] = np.minimum(nearest, others)
    return found


def _search(
    points: Points, x: Values, owner: Counts, queries: tuple[Values, Counts] | None = None
) -> Search:
    return Search(CALLER, x, owner, 0.0, points.cells, points.periodic, queries)


def _farthest(points: Points, counts: Counts, nearest: int) -> Values:
    """Return the distance of the farthest of the nearest own points, infinite if these are few."""
    graphs, sizes = np.unique(points.owner, return_counts=True)
    here = _counts(points, points.owner, nearest, graphs, sizes)
    found = _search(points, points.x, points.owner).nearest(here, Parts(vectors=True))
    radius = np.full(len(here), np.inf)
    enough = (here == counts) & (here > 0)
    ends = np.cumsum(here)[enough] - 1
    radius[enough] = np.linalg.norm(found.vectors[ends], axis=1)
    radius[counts == 0] = 0
    return radius


def _queries(points: Points, boxes: _Boxes, radius: Values, rank: int) -> tuple[Counts, Counts]:
    """Return a row for each point and rank that may have nearer ones, and the ranks.

    A row has the own rank, the graph, and the bits of the position and of the radius.
    """
    place, reach, periodic = lattice_of(points, points.x, points.owner, radius)
    reach = reach * (1 + 1e-9) + 64 * _EPS * abs(place).max(initial=0)
    order = np.argsort(points.owner, kind="stable")
    graphs, starts = np.unique(points.owner[order], return_index=True)
    if len(graphs) == 0:
        return np.empty((0, 6), np.int64), np.empty(0, np.int64)
    low, high = (f.reduceat(place[order], starts) for f in (np.minimum, np.maximum))
    farthest = np.maximum.reduceat(reach[order], starts)
    ends = np.append(starts[1:], len(order))
    mine = np.minimum(np.searchsorted(graphs, boxes.graph), len(graphs) - 1)
    candidates = (graphs[mine] == boxes.graph) & (boxes.rank != rank)
    candidates &= _meet(
        boxes.low - farthest[mine],
        boxes.high + farthest[mine],
        low[mine],
        high[mine],
        periodic[order[starts]][mine],
    )
    which, to = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for b in np.flatnonzero(candidates):
        own = order[starts[mine[b]] : ends[mine[b]]]
        low_here, high_here = boxes.low[b] - reach[own], boxes.high[b] + reach[own]
        near = own[_meet(low_here, high_here, place[own], place[own], periodic[own])]
        which.append(near)
        to.append(np.full(len(near), boxes.rank[b]))
    chosen = np.concatenate(which)
    bits = np.concatenate([points.x[chosen], radius[chosen, None]], 1).view(np.int64)
    ends_of = np.stack([np.full(len(chosen), rank), points.owner[chosen]], 1)
    return np.concatenate([ends_of, bits], 1), np.concatenate(to)


def _meet(
    low: Values, high: Values, start: Values, stop: Values, periodic: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return whether boxes from `low` to `high` and from `start` to `stop` meet, or images do."""
    images = np.ceil(low - stop) <= np.floor(high - start)
    inside = (low <= stop) & (start <= high)
    found: npt.NDArray[np.bool_] = np.all(np.where(periodic, images, inside), axis=1)
    return found


def _answers(points: Points, queries: Counts, nearest: int, largest: float) -> Counts:
    """Return own points that may be among the nearest of queries, with the ranks that need them."""
    if len(queries) == 0:
        return np.empty((0, 2), np.int64)
    sender, owner = queries[:, 0], np.ascontiguousarray(queries[:, 1])
    bits = np.ascontiguousarray(queries[:, 2:]).view(np.float64)
    x, radius = np.ascontiguousarray(bits[:, :3]), bits[:, 3]
    graphs, sizes = np.unique(points.owner, return_counts=True)
    counts = _counts(points, owner, nearest, graphs, sizes, itself=0)
    found = _search(points, points.x, points.owner, (x, owner)).nearest(counts, Parts(vectors=True))
    bound = radius * (1 + 1e-9) + 64 * _EPS * (largest + radius)
    near = np.linalg.norm(found.vectors, axis=1) <= bound[found.dst]
    return np.unique(np.stack([found.src, sender[found.dst]], 1)[near].astype(np.int64), axis=0)
