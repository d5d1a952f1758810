"""Neighbours within a cutoff, of points that are distributed over ranks."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..neighbours import check_batch, check_cell, check_points, radius_graph
from ._halo import by_rank, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._call.indices import Indices
    from ._communicator import Communicator
    from ._graph import DistributedGraph
    from ._mpi import Counts, Engine, Values

    Found = tuple[DistributedGraph, Values, Values, Indices]

CALLER = "Communicator.radius_graph"
_AROUND = np.array([*itertools.product((-1, 0, 1), repeat=3)])
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""Odd factor whose bits are irregular: 2^64 over the golden ratio."""


def distributed_radius_graph(
    comm: Communicator,
    positions: Values,
    cutoff: float,
    cell: Values | None,
    pbc: npt.ArrayLike | None,
    batch: npt.ArrayLike | None,
) -> Found:
    """See `Communicator.radius_graph`."""
    search = functools.partial(radius_graph, cutoff=cutoff, cell=cell, pbc=pbc)
    own_points = distributed_points(comm, CALLER, search, positions, cell, pbc, batch)
    x, owner, ranges = own_points.x, own_points.owner, own_points.ranges
    engine, dim = comm._engine, positions.shape[1]
    first, last = ranges[comm.rank : comm.rank + 2].tolist()
    lattice = lattice_of(own_points, x, owner, np.full(len(x), float(cutoff)))
    farthest = -float(engine.min(np.array([-abs(lattice.place).max(initial=0)]))[0])
    own, around = comm._together(CALLER, lambda: _cells(lattice, owner, farthest))
    bits = x.view(np.int64)
    rows = np.concatenate([np.arange(first, last)[:, None], owner[:, None], bits], 1)
    ghosts = _fetch(engine, own, around, rows)
    ghosts = ghosts[np.argsort(ghosts[:, 0])]
    below = int(np.searchsorted(ghosts[:, 0], first))
    table = np.concatenate([ghosts[:below], rows, ghosts[below:]])
    points = np.ascontiguousarray(table[:, 2:]).view(np.float64)[:, :dim].astype(positions.dtype)
    graphs = None if batch is None else table[:, 1]
    local, vectors, offsets, reverse = comm._together(
        CALLER, lambda: radius_graph(points, cutoff, cell=cell, pbc=pbc, batch=graphs)
    )
    into_own = slice(*np.searchsorted(local.dst, [below, below + last - first]).tolist())
    src, dst = (table[:, 0][ends[into_own]] for ends in (local.src, local.dst))
    graph = comm.graph(src, dst, owned=(first, last))
    vectors, offsets = vectors[into_own].copy(), offsets[into_own].copy()
    start = int(graph._edges.ranges[comm.rank])
    numbers = reverse[into_own] - into_own.start + start
    cut = np.flatnonzero((src < first) | (src >= last))
    numbers[cut] = _reverses(engine, ranges, src[cut], dst[cut], cut + start)
    return graph, vectors, offsets, numbers


class Points(NamedTuple):
    """Own points, their graphs, the first point of each rank, and cells with their directions."""

    x: Values
    owner: Counts
    ranges: Counts
    cells: Values
    periodic: npt.NDArray[np.bool_]


def distributed_points(
    comm: Communicator,
    caller: str,
    search: Callable[..., object],
    positions: Values,
    cell: Values | None,
    pbc: npt.ArrayLike | None,
    batch: npt.ArrayLike | None,
) -> Points:
    """Check the points and options of all ranks.

    `search` is the search of one rank, with its options.
    """

    def check() -> Counts:
        fits = isinstance(positions, np.ndarray) and positions.shape[1:] in ((1,), (2,), (3,))
        search(positions[:0] if fits else positions, batch=None if batch is None else [])
        if not np.isfinite(positions).all():
            raise ValueError(f"{caller}: positions: expected finite numbers, got others")
        if float(abs(positions).max(initial=0)) > 1e150:
            raise ValueError(f"{caller}: positions: expected numbers up to 1e150, got larger ones")
        return check_batch(caller, batch, len(positions))[0]

    owner = comm._together(
        caller,
        check,
        lambda _: (
            positions.dtype.char,
            positions.shape[1],
            *(None if a is None else np.asarray(a).tolist() for a in _options(search)),
            batch is None,
        ),
    )
    ranges = joined(comm._engine.gather(np.array([len(owner)]))[:, 0])
    graphs = None if batch is None else 1 + int(owner.max(initial=0))
    dim = positions.shape[1]
    cells = comm._together(caller, lambda: check_cell(caller, cell, pbc, graphs, dim))
    return Points(check_points(caller, positions), owner, ranges, *cells)


def _options(search: Callable[..., object]) -> tuple[npt.ArrayLike | None, ...]:
    """Return the options of a search, which are equal on all ranks."""
    assert isinstance(search, functools.partial)
    return tuple(search.keywords.values())


class Lattice(NamedTuple):
    """Positions in units of the cell, distances in these units, and periodic directions."""

    place: Values
    reach: Values
    periodic: npt.NDArray[np.bool_]


def lattice_of(points: Points, x: Values, owner: Counts, distances: Values) -> Lattice:
    """Return points of the graphs `owner` with a distance around each, in units of the cells."""
    which = np.minimum(owner, len(points.cells) - 1)
    inverse = np.linalg.inv(points.cells)
    reach = distances[:, None] * np.linalg.norm(inverse, axis=1)[which]
    place = np.einsum("nd,ndk->nk", x, inverse[which])
    return Lattice(place, reach, points.periodic[which])


def _cells(lattice: Lattice, owner: Counts, farthest: float) -> tuple[Counts, Counts]:
    """Return a key of the cell of each point, and those of all cells around these.

    Cells are no smaller than the cutoff, and rounding, of the largest coordinate of all ranks. So
    neighbours are in the same or adjacent cells. Equal keys of different cells are rare and cost a
    few more ghosts.
    """
    place, reach, periodic = lattice
    reach = reach * (1 + 1e-9) + 1e-9 + 16 * np.finfo(np.float64).eps * farthest
    count = np.where(periodic, np.maximum(np.floor(1 / reach), 1), 0).astype(np.int64)
    inside = np.floor((place - np.floor(place)) * count)
    index = np.where(periodic, np.minimum(inside, count - 1), np.floor(place / reach))
    with np.errstate(invalid="ignore"):  # beyond int64 all are one cell
        rows = np.concatenate([owner[:, None], index.astype(np.int64), count], 1)
    keys = _key(rows)
    together = rows[np.argsort(keys, kind="stable")]
    changes = (np.diff(together, axis=0, prepend=-1) != 0).any(1)
    around = np.repeat(together[changes, None], len(_AROUND), 1)
    numbers, size = around[:, :, 1:4], around[:, :, 4:]
    numbers += _AROUND
    numbers[...] = np.where(size > 0, numbers % np.maximum(size, 1), numbers)
    return keys, np.unique(_key(around.reshape(-1, rows.shape[1])))


def _key(rows: Counts) -> Counts:
    """Return a number for the graph and the three indices of each cell."""
    key = np.full(len(rows), _MIX)
    for column in rows[:, :4].T.astype(np.uint64):
        key = (key ^ column) * _MIX
        key ^= key >> np.uint64(31)
    return (key >> np.uint64(1)).astype(np.int64)


def _fetch(engine: Engine, own: Counts, around: Counts, rows: Counts) -> Counts:
    """Return the rows of other ranks in cells around own points.

    A rank that depends on the cell alone learns who has points in it and who needs them.
    """
    having = _sent(engine, np.unique(own)[:, None])
    needing = _sent(engine, around[:, None])
    needing = needing[np.argsort(needing[:, 0], kind="stable")]
    ends = [np.searchsorted(needing[:, 0], having[:, 0], side) for side in ("left", "right")]
    counts = ends[1] - ends[0]
    each = np.repeat(np.arange(len(having)), counts)
    which = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts - ends[0], counts)
    pairs = np.stack([having[each, 0], having[each, 1], needing[which, 1]], 1)
    pairs = pairs[pairs[:, 1] != pairs[:, 2]]
    orders = pushed(engine, pairs[:, [0, 2]], pairs[:, 1])
    order = np.argsort(own, kind="stable")
    ends = [np.searchsorted(own[order], orders[:, 0], side) for side in ("left", "right")]
    counts = ends[1] - ends[0]
    which = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - ends[0], counts)
    return pushed(engine, rows[order[which]], np.repeat(orders[:, 1], counts))


def _sent(engine: Engine, keys: Counts) -> Counts:
    """Send keys to ranks that depend on these alone; return those received, with the sender."""
    sender = np.full_like(keys, engine.rank)
    return pushed(engine, np.concatenate([keys, sender], 1), keys[:, 0] % engine.size)


def pushed(engine: Engine, rows: Counts, to: Counts) -> Counts:
    """Send each row to a rank; return those received, in the order of ranks."""
    order, counts = by_rank(to, engine.size)
    return engine.push(rows[order], counts)[0]


def _reverses(engine: Engine, ranges: Counts, src: Counts, dst: Counts, numbers: Counts) -> Counts:
    """Return the numbers, through all ranks, of the reverses of edges from other ranks.

    Two ranks have the same edges between them, each in one direction, and the reverses of edges
    between the same two points follow each other in the opposite order. So each rank sends the
    numbers of its own in the order in which the other has their reverses.
    """
    ranks = np.searchsorted(ranges[1:-1], src, side="right")
    sent = np.lexsort((-numbers, dst, src, ranks))
    kept = np.lexsort((numbers, src, dst, ranks))
    counts = np.bincount(ranks, minlength=engine.size).astype(np.int64)
    received, _ = engine.push(numbers[sent][:, None], counts)
    found = np.empty_like(numbers)
    found[kept] = received[:, 0]
    return found
