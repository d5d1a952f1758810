"""Neighbours within a cutoff, by a cell list in time linear in the number of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._call.arrays import check_array
from ._call.eager import eager
from ._call.indices import Indices, check_indices, pack_rows
from ._pairs import close_pairs, close_pairs_within
from .graph import Graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._call.types import Array

_AT_ONCE = 2**15
"""Edges of a block of vectors; they fit in L2."""
_MOST_IMAGES = 10**6
"""Largest number of periodic images that are searched."""
_FARTHEST = 2**31
"""Largest distance of a point from the first cell, in cells; few digits of its position remain."""


@eager
def radius_graph(
    positions: Array,
    cutoff: float,
    *,
    cell: Array | None = None,
    pbc: npt.ArrayLike | None = None,
    batch: npt.ArrayLike | None = None,
) -> tuple[Graph, Array, Array, Indices]:
    """Build the graph of all points closer to each other than a cutoff, periodic images included.

    Entry e runs from j to i where ``positions[j] + offsets[e]`` is nearer than `cutoff` to
    ``positions[i]``; entries are sorted by destination. A point is a neighbour of its own images,
    not of itself.

    Parameters
    ----------
    positions : array, shape (num_nodes, 3)
    cutoff : float
        In the units of the positions; pairs at exactly this distance are not neighbours.
    cell : array, shape (3, 3) or (num_graphs, 3, 3), optional
        Vectors of the periodic cell as rows, one cell for all or one for each graph of the batch.
        A zero vector along a direction that is not periodic stands for one out of the plane of the
        others.
    pbc : bool, shape (3,) or (num_graphs, 3), optional
        Along which cell vectors space is periodic; by default along all.
    batch : array_like of int32 or int64, shape (num_nodes,), optional
        The graph that each point belongs to; there are no edges between graphs. If `cell` or `pbc`
        is given for each graph, it determines their number: the last graphs may be empty.

    Returns
    -------
    graph : Graph
    vectors : array, shape (num_edges, 3)
        ``positions[src] - positions[dst] + offsets``, an array without derivative: to
        differentiate, compute it again from positions and cell.
    offsets : array, shape (num_edges, 3)
        Offset of the source's image, 0 without a cell.
    reverse : array of int64, shape (num_edges,)
        Row of the reverse of each edge, for ``dimenet_aggregate(exclude="image")``.

    Raises
    ------
    TypeError, ValueError
        If shapes, types or values do not fit. ValueError also for points that are not finite or
        2^31 periods of the cell away, and for cells without volume.
    """
    caller = "radius_graph"
    check_array(f"{caller}: positions", positions, on_host=True)
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ValueError(
            f"{caller}: positions: expected shape (num_nodes, 3), got {positions.shape}"
        )
    if not np.isfinite(positions).all():
        raise ValueError(f"{caller}: positions: expected finite numbers, got others")
    if isinstance(cutoff, bool) or not isinstance(cutoff, (int, float, np.integer, np.floating)):
        raise TypeError(f"{caller}: cutoff: expected a number, got {cutoff!r}")
    if not 1e-150 < cutoff < 1e150:  # the square of others overflows or underflows
        raise ValueError(
            f"{caller}: cutoff: expected a positive number, 1e-150 to 1e150, got {cutoff!r:.30}"
        )
    count = len(positions)
    owner = np.zeros(count, np.int64)
    if batch is not None:
        owner = check_indices(f"{caller}: batch", batch).astype(np.int64)
        if len(owner) != count or owner.min(initial=0) < 0:
            raise ValueError(
                f"{caller}: batch: expected num_nodes={count} numbers from 0 on, "
                f"got {len(owner)} from {owner.min(initial=0)}"
            )
    graphs = None if batch is None else 1 + int(owner.max(initial=0))
    cells, periodic = _check_cell(cell, pbc, graphs)
    x, cutoff = positions.astype(np.float64), float(cutoff)
    if count and periodic.any():
        images, *ends = _through_images(x, cutoff, cells, periodic, owner)
    else:
        images, ends = None, [*close_pairs_within(x, cutoff, owner)]
    near = np.empty(len(ends[0]), bool)
    for block in _blocks(len(near)):
        v = _between(x, images, *(e[block] for e in ends))[0]
        near[block] = v[:, 0] ** 2 + v[:, 1] ** 2 + v[:, 2] ** 2 < cutoff**2
    ends = [e[near] for e in ends]
    ends, reverse = _both_ways(count, images, *ends)
    dtype = positions.dtype.newbyteorder("=")
    vectors, offsets = (np.zeros((len(reverse), 3), dtype) for _ in range(2))
    for block in _blocks(len(reverse)):
        vectors[block], along = _between(x, images, *(e[block] for e in ends))
        if images is not None:
            offsets[block] = along
    return Graph(ends[1], ends[0], count), vectors, offsets, reverse


def _check_cell(
    cell: object, pbc: object, graphs: int | None
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return a cell for each graph, or one for all, and its periodic directions."""
    caller = "radius_graph"
    if cell is None:
        if pbc is not None and np.any(np.asarray(pbc)):
            raise ValueError(f"{caller}: pbc: expected a cell beside it, got none")
        return np.eye(3)[None], np.zeros((1, 3), bool)
    array = check_array(f"{caller}: cell", cell, on_host=True)
    try:
        periodic = np.ones(3, bool) if pbc is None else np.asarray(pbc)
    except ValueError:  # ragged rows
        periodic = np.empty(0)
    rows = [len(a) for a, ndim in ((array, 3), (periodic, 2)) if a.ndim == ndim]
    graphs = 1 if graphs is None else max(graphs, *rows, 1)
    if array.shape not in ((3, 3), (graphs, 3, 3)):
        raise ValueError(
            f"{caller}: cell: expected shape (3, 3) or (num_graphs={graphs}, 3, 3), "
            f"got {array.shape}"
        )
    if periodic.shape not in ((3,), (graphs, 3)) or periodic.dtype != bool:
        raise ValueError(
            f"{caller}: pbc: expected three bool, or three for each of num_graphs={graphs}, "
            f"got {pbc!r}"
        )
    array, periodic = array.astype(np.float64).reshape(-1, 3, 3), periodic.reshape(-1, 3)
    count = max(len(array), len(periodic))
    periodic = np.broadcast_to(periodic, (count, 3))
    array = _completed(np.broadcast_to(array, (count, 3, 3)), periodic)
    if not (np.isfinite(array).all() and (abs(np.linalg.det(array)) > 0).all()):
        raise ValueError(f"{caller}: cell: expected finite vectors that span a volume, got others")
    return array, periodic


def _completed(cells: Array, periodic: npt.NDArray[np.bool_]) -> Array:
    """Replace zero vectors of directions that are not periodic by unit vectors normal to others."""
    missing = ~cells.any(2) & ~periodic
    cells = cells.copy()
    for k in np.flatnonzero(missing.any(1) & np.isfinite(cells).all((1, 2))):
        cells[k, missing[k]] = np.linalg.svd(cells[k])[2][3 - missing[k].sum() :]
    return cells


class _Images(NamedTuple):
    """Periodic images of points.

    Row `turns[code]` translates point j of a pair from the first cell to its image, `home[j]` to
    the first cell. Row -1 - code is the reverse translation.
    """

    cells: Array
    place: Indices
    home: Indices
    turns: Indices
    away: Any
    """Flags of the points outside the first cell."""

    def offsets(self, i: Indices, j: Indices, code: Indices) -> Array:
        offsets = np.zeros((len(i), 3))
        away = self.away[i] | self.away[j]
        moved = np.flatnonzero((code != len(self.turns) // 2) | away)
        i, j = i[moved], j[moved]
        shift = self.turns[code[moved]] + self.home[j] - self.home[i]
        cells = self.cells[self.place[i]] if len(self.cells) > 1 else self.cells
        parts = [shift[:, k, None] * cells[:, k] for k in range(3)]
        offsets[moved] += parts[0] + parts[1] + parts[2]
        return offsets


def _between(
    x: Array, images: _Images | None, i: Indices, j: Indices, *code: Indices
) -> tuple[Array, Array | None]:
    """Return vectors from i to the images of j, and offsets; reverse pairs negate them exactly."""
    vectors = x.take(j, 0)
    vectors -= x.take(i, 0)
    if images is None:
        return vectors, None
    offsets = images.offsets(i, j, *code)
    vectors += offsets
    return vectors, offsets


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))


def _both_ways(
    count: int, images: _Images | None, i: Indices, j: Indices, *code: Indices
) -> tuple[list[Indices], Indices]:
    """Return both directions of pairs, sorted by destination, and the row of each one's reverse."""
    pairs = len(i)
    keys = [(np.concatenate([i, j]), count), (np.concatenate([j, i]), count)]
    if images is not None:
        last = len(images.turns) - 1
        keys += [(np.concatenate([c, last - c]), last + 1) for c in code]
    order = pack_rows(*keys[-1])[1] - 1
    for key, size in reversed(keys[:-1]):
        order = order[pack_rows(key[order], size)[1] - 1]
    row = np.empty(2 * pairs, np.int64)
    row[order] = np.arange(2 * pairs)
    back = np.where(order < pairs, order + pairs, order - pairs)
    return [key[order] for key, _ in keys], row[back]


def _through_images(
    x: Array, cutoff: float, cells: Array, periodic: npt.NDArray[np.bool_], owner: Indices
) -> tuple[_Images, Indices, Indices, Indices]:
    """Return the pairs of points and images in one direction, within the cutoff up to rounding."""
    place = np.minimum(owner, len(cells) - 1)
    inverse, turning = np.linalg.inv(cells), periodic[place]
    fraction = np.einsum("nd,ndk->nk", x, inverse[place])
    farthest = abs(fraction[turning]).max(initial=0)
    if farthest > _FARTHEST:
        raise ValueError(
            f"radius_graph: positions: expected points within {_FARTHEST:g} cells of the first, "
            f"got one {farthest:.2g} cells away"
        )
    home = np.where(turning, -np.floor(fraction), 0).astype(np.int64)
    fraction += home
    reach = cutoff * np.linalg.norm(inverse, axis=1) * (1 + 1e-9) + 1e-9
    reach = reach[place]
    most = np.where(turning, np.ceil(reach), 0).max(0)
    number = np.prod(2 * most + 1)
    if number > _MOST_IMAGES:
        raise ValueError(
            f"radius_graph: cell: expected one of which the cutoff of {cutoff:g} reaches at most "
            f"{_MOST_IMAGES} images, got one of which it reaches {number:.2g}"
        )
    most = most.astype(int)
    sizes = 2 * most + 1
    # Sorted by the last direction first; the second half reverses the first half.
    turns = np.indices(sizes[::-1]).reshape(3, -1).T[:, ::-1] - most
    points = x + np.einsum("nk,nkd->nd", home, cells[place])
    low = np.where(turning, np.maximum(np.ceil(-reach - fraction), -most), 0).astype(int)
    high = np.where(turning, np.minimum(np.floor(1 + reach - fraction), most), 0).astype(int)
    ghost, code = _later(low + most, high + most, sizes)
    others = points[ghost] + np.einsum("gk,gkd->gd", turns[code], cells[place[ghost]])
    i, j = close_pairs_within(points, cutoff, owner)
    k, g = close_pairs(points, others, cutoff, owner, owner[ghost])
    small = i.dtype
    i, j = np.concatenate([i, k.astype(small)]), np.concatenate([j, ghost[g].astype(small)])
    codes = np.full(len(i), len(turns) // 2, np.int32)
    codes[len(i) - len(g) :] = code[g]
    return _Images(cells, place, home, turns, home.any(1)), i, j, codes


def _later(low: Indices, high: Indices, sizes: Indices) -> tuple[Indices, Indices]:
    """Return the points, repeated per code of their ranges in the second half, and these codes."""
    widths = high - low + 1
    counts = widths.prod(1)
    ghost = np.repeat(np.arange(len(low)), counts)
    turn = np.arange(len(ghost)) - np.repeat(np.cumsum(counts) - counts, counts)
    code, scale = np.zeros(len(ghost), np.int64), 1
    for k in range(3):
        turn, here = np.divmod(turn, widths[ghost, k])
        code += scale * (here + low[ghost, k])
        scale *= int(sizes[k])
    later = code > scale // 2
    return ghost[later], code[later]
