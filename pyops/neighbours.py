"""Neighbours within a cutoff, by a cell list in time linear in the points."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Array, check_array
from ._indices import Indices, check_indices
from .graph import Graph

_MOST_IMAGES = 10**6
"""Cells around the first that are looked through."""


def radius_graph(
    positions: Array,
    cutoff: float,
    *,
    cell: Array | None = None,
    pbc: npt.ArrayLike | None = None,
    batch: npt.ArrayLike | None = None,
) -> tuple[Graph, Array, Array, Indices]:
    """The graph of all points closer to each other than a cutoff, periodic images included.

    Entry e runs from j to i where ``positions[j] + offsets[e]`` is nearer than `cutoff` to
    ``positions[i]``; entries are sorted by destination. A point is a neighbour of its own images,
    not of itself.

    Parameters
    ----------
    positions : array, shape (num_nodes, 3)
    cutoff : float
        In the units of the positions; pairs at this distance are not neighbours.
    cell : array, shape (3, 3) or (num_graphs, 3, 3), optional
        Vectors of the periodic cell as rows, one cell for all or one for each graph of the batch.
    pbc : three bool, optional
        Along which vectors of the cell space is periodic; by default along all.
    batch : array_like of int32 or int64, shape (num_nodes,), optional
        The graph that each point belongs to; there are no edges between graphs.

    Returns
    -------
    graph : Graph
    vectors : array, shape (num_edges, 3)
        ``positions[src] - positions[dst] + offsets``: gradients by positions and cell follow.
    offsets : array, shape (num_edges, 3)
        Offset of the image of the source, 0 without a cell.
    reverse : array of int64, shape (num_edges,)
        Row of the edge that is the reverse of each, for ``dimenet_aggregate(exclude="image")``.

    Raises
    ------
    TypeError, ValueError
        If shapes, types or values do not fit; ValueError also for points that are not finite and
        cells without volume.
    """
    caller = "radius_graph"
    check_array(f"{caller}: positions", positions)
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ValueError(
            f"{caller}: positions: expected shape (num_nodes, 3), got {positions.shape}"
        )
    if not np.isfinite(positions).all():
        raise ValueError(f"{caller}: positions: expected finite numbers, got others")
    if isinstance(cutoff, bool) or not isinstance(cutoff, (int, float, np.integer, np.floating)):
        raise TypeError(f"{caller}: cutoff: expected a number, got {cutoff!r}")
    if not 0 < cutoff < np.inf:
        raise ValueError(f"{caller}: cutoff: expected a positive number, got {cutoff!r}")
    count = len(positions)
    owner = np.zeros(count, np.int64)
    if batch is not None:
        owner = check_indices(f"{caller}: batch", batch).astype(np.int64)
        if len(owner) != count or owner.min(initial=0) < 0:
            raise ValueError(
                f"{caller}: batch: expected num_nodes={count} numbers from 0 on, "
                f"got {len(owner)} from {owner.min(initial=0)}"
            )
    graphs = 1 + int(owner.max(initial=0))
    cells, periodic = _check_cell(caller, cell, pbc, graphs, positions)
    x = positions.astype(np.float64)
    place = np.minimum(owner, len(cells) - 1)
    home, ghosts, shifts = _images(x, np.linalg.inv(cells)[place], periodic, float(cutoff))
    cells = cells[place]
    i, k = _close(x, home, ghosts, shifts, owner, cells, float(cutoff))
    j, shift = ghosts[k], shifts[k] + home[ghosts[k]] - home[i]
    order = np.lexsort((*shift.T, j, i))
    i, j, shift = i[order], j[order], shift[order]
    offsets = np.einsum("ek,ekd->ed", shift, cells[i])
    vectors = x[j] - x[i] + offsets
    # The way back comes after the same sum of negative numbers: both are kept, or neither.
    near = (vectors**2).sum(1) < float(cutoff) ** 2
    near &= (i != j) | (shift != 0).any(1)
    i, j, shift = i[near], j[near], shift[near]
    reverse = np.empty(len(i), np.int64)
    reverse[np.lexsort((*-shift.T, i, j))] = np.arange(len(i))
    dtype = positions.dtype.newbyteorder("=")
    graph = Graph(j, i, count)
    return graph, vectors[near].astype(dtype), offsets[near].astype(dtype), reverse


def _check_cell(
    caller: str, cell: object, pbc: object, graphs: int, positions: Array
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """A cell for each graph, or one for all, and along which vectors space is periodic."""
    if cell is None:
        if pbc is not None and np.any(np.asarray(pbc)):
            raise ValueError(f"{caller}: pbc: expected a cell beside it, got none")
        return np.eye(3)[None], np.zeros(3, bool)
    array = check_array(f"{caller}: cell", cell)
    if array.shape not in ((3, 3), (graphs, 3, 3)):
        raise ValueError(
            f"{caller}: cell: expected shape (3, 3) or (num_graphs={graphs}, 3, 3), "
            f"got {array.shape}"
        )
    periodic = np.ones(3, bool) if pbc is None else np.asarray(pbc)
    if periodic.shape != (3,) or periodic.dtype != bool:
        raise ValueError(f"{caller}: pbc: expected three bool, got {pbc!r}")
    array = array.astype(np.float64)
    if not (np.isfinite(array).all() and (abs(np.linalg.det(array)) > 0).all()):
        raise ValueError(f"{caller}: cell: expected finite vectors that span a volume, got others")
    return array.reshape(-1, 3, 3), periodic


def _images(
    x: Array,
    inverse: Array,
    periodic: npt.NDArray[np.bool_],
    cutoff: float,
) -> tuple[Any, Any, Any]:
    """Cells each point lies in, and all images next to the first cell: their points and shifts.

    `home` takes a point into the first cell; ghost g is point ghosts[g], shifted by shifts[g] from
    there.
    """
    count = len(x)
    home = np.zeros((count, 3), np.int64)
    if not periodic.any() or count == 0:
        return home, np.arange(count), home
    fraction = np.einsum("nd,ndk->nk", x, inverse)
    home[:, periodic] = -np.floor(fraction[:, periodic]).astype(np.int64)
    fraction += home
    reach = cutoff * np.linalg.norm(inverse, axis=1) * (1 + 1e-9) + 1e-9
    most = np.where(periodic, np.ceil(reach.max(0)), 0)
    images = np.prod(2 * most + 1)
    if images > _MOST_IMAGES:
        raise ValueError(
            f"radius_graph: cell: expected one of which the cutoff of {cutoff:g} reaches at most "
            f"{_MOST_IMAGES} images, got one of which it reaches {images:.2g}"
        )
    ranges = [range(-n, n + 1) for n in most.astype(int)]
    ghosts, shifts = [], []
    for shift in itertools.product(*ranges):
        moved = fraction + shift
        inside = ((moved >= -reach) & (moved <= 1 + reach)) | ~periodic
        chosen = np.flatnonzero(inside.all(1))
        ghosts.append(chosen)
        shifts.append(np.broadcast_to(np.array(shift, np.int64), (len(chosen), 3)))
    return home, np.concatenate(ghosts), np.concatenate(shifts)


def _close(
    x: Array, home: Any, ghosts: Any, shifts: Any, owner: Any, cells: Array, cutoff: float
) -> tuple[Any, Any]:
    """Pairs of a point and a ghost in neighbouring bins, and near enough up to rounding."""
    points = x + np.einsum("nk,nkd->nd", home, cells)
    images = points[ghosts] + np.einsum("gk,gkd->gd", shifts, cells[ghosts])
    return close_pairs(points, images, cutoff, owner, owner[ghosts])


def close_pairs(
    points: Array, others: Array, cutoff: float, owner: Any = 0, of_others: Any = 0
) -> tuple[Any, Any]:
    """Pairs of points and others, [n, 3] and [m, 3], nearer than a cutoff up to rounding.

    Only those of equal owners, whole numbers from 0 on, are pairs.
    """
    empty = np.zeros(0, np.int64)
    if len(points) == 0 or len(others) == 0:
        return empty, empty
    origin = np.minimum(others.min(0), points.min(0))
    extent = np.maximum(others.max(0), points.max(0)) - origin
    width = cutoff * (1 + 1e-9) + 1e-15 * extent.max()  # the slack is beyond the rounding of bins
    both = np.floor((np.concatenate([others, points]) - origin) / width)
    owners = [np.broadcast_to(o, len(x)) for o, x in ((of_others, others), (owner, points))]
    graph = np.unique(np.concatenate(owners), return_inverse=True)[1]
    x, y, z = (_close_up(axis) for axis in both.T)
    # Bins in numbers of the points, however far apart they are: no number below overflows.
    x = _close_up(graph * (x.max() + 2) + x)
    across = y.max() + 2
    columns, column = np.unique(x * across + y, return_inverse=True)
    along = z.max() + 2
    m = len(others)
    keys = column[:m] * along + z[:m]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    found_i, found_k = [], []
    for dx, dy in itertools.product((-1, 0, 1), repeat=2):
        wanted = (x[m:] + dx) * across + y[m:] + dy
        there = np.minimum(np.searchsorted(columns, wanted), len(columns) - 1)
        own = np.flatnonzero(columns[there] == wanted)
        middle = there[own] * along + z[m:][own]
        first = np.searchsorted(keys, middle - 1)
        counts = np.searchsorted(keys, middle + 1, side="right") - first
        i = np.repeat(own, counts)
        turn = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
        k = order[np.repeat(first, counts) + turn]
        near = ((others[k] - points[i]) ** 2).sum(1) < (cutoff * (1 + 1e-9)) ** 2
        found_i.append(i[near])
        found_k.append(k[near])
    return np.concatenate(found_i), np.concatenate(found_k)


def _close_up(bins: Any) -> Any:
    """Bins numbered from 1 on: neighbours stay so, and wider gaps become those of one bin."""
    known, place = np.unique(bins, return_inverse=True)
    steps = np.where(np.diff(known) <= 1, 1, 2)
    return (1 + np.concatenate([[0], np.cumsum(steps)]))[place]
