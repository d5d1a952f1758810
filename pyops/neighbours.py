"""Neighbours within a cutoff, of points in one to three dimensions, periodic or not.

Both graphs share their checks, so they are one module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ._call.arrays import check_array
from ._call.eager import eager
from ._call.indices import Indices, check_count, check_indices
from ._neighbour_search import Parts, Search
from .graph import Graph

if TYPE_CHECKING:
    from ._call.types import Array
    from ._neighbour_search import Neighbours


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
    positions : array, shape (num_nodes, dim)
        In one to three dimensions.
    cutoff : float
        In the units of the positions; pairs at exactly this distance are not neighbours.
    cell : array, shape (dim, dim) or (num_graphs, dim, dim), optional
        Vectors of the periodic cell as rows, one cell for all or one for each graph of the batch.
        A zero vector along a direction that is not periodic stands for one out of the plane of the
        others.
    pbc : bool, shape (dim,) or (num_graphs, dim), optional
        Along which cell vectors space is periodic; by default along all.
    batch : array_like of int32 or int64, shape (num_nodes,), optional
        The graph that each point belongs to; there are no edges between graphs. If `cell` or `pbc`
        is given for each graph, it determines their number: the last graphs may be empty.

    Returns
    -------
    graph : Graph
        With one node for each point.
    vectors : array, shape (num_edges, dim)
        ``positions[src] - positions[dst] + offsets``, an array without derivative: to
        differentiate, compute it again from positions and cell.
    offsets : array, shape (num_edges, dim)
        Offset of the source's image, 0 without a cell.
    reverse : array of int64, shape (num_edges,)
        Row of the reverse of each edge, for ``dimenet_aggregate(exclude="image")``.

    Raises
    ------
    TypeError, ValueError
        If shapes, types or values do not fit. ValueError also for points that are not finite or
        2^31 periods of the cell away, and for cells without volume.
    """
    parts = Parts(vectors=True, offsets=cell is not None, reverse=True)
    found, _ = _near(positions, cutoff, cell, pbc, batch, parts)
    return *_results(positions, found), found.reverse


@eager
def knn_graph(
    positions: Array,
    nearest: int,
    *,
    cell: Array | None = None,
    pbc: npt.ArrayLike | None = None,
    batch: npt.ArrayLike | None = None,
) -> tuple[Graph, Array, Array]:
    """Build the graph of edges from the nearest other points to each point, images included.

    Entries are sorted by destination, then by distance, source and image.

    Parameters
    ----------
    positions : array, shape (num_nodes, dim)
        In one to three dimensions.
    nearest : int
        Number of edges into each point; those of a graph that is not periodic and has fewer other
        points come from all of them.
    cell, pbc, batch
        As for `radius_graph`.

    Returns
    -------
    graph : Graph
        With one node for each point.
    vectors, offsets : array, shape (num_edges, dim)
        As by `radius_graph`.

    Raises
    ------
    TypeError, ValueError
        As for `radius_graph`.

    Examples
    --------
    >>> pyops.knn_graph(np.array([[0.0], [1.0], [3.0]]), 1)[0].src
    array([1, 0, 1], dtype=int32)
    """
    parts = Parts(vectors=True, offsets=cell is not None)
    found, _ = _nearest(positions, nearest, cell, pbc, batch, parts)
    return _results(positions, found)


def near_images(
    positions: Array,
    cutoff: float | None,
    nearest: int | None = None,
    *,
    cell: Array | None = None,
    pbc: npt.ArrayLike | None = None,
    batch: npt.ArrayLike | None = None,
) -> tuple[Indices, Array, Indices]:
    """Return the edges [2, edges] of a graph, the images of sources, and any reverses.

    The graph is a `radius_graph` or, if `nearest` is given, a `knn_graph`. Images are whole numbers
    of cell vectors, so offsets are ``images @ cell``.
    """
    if nearest is None:
        parts = Parts(offsets=cell is not None, reverse=True)
        found, cells = _near(positions, cutoff, cell, pbc, batch, parts)
    else:
        parts = Parts(offsets=cell is not None)
        found, cells = _nearest(positions, nearest, cell, pbc, batch, parts)
    edges, dim = np.stack([found.src, found.dst], dtype=np.int64), positions.shape[1]
    if cell is None:
        return edges, np.ascontiguousarray(found.offsets[:, :dim]), found.reverse
    inverse = np.linalg.inv(cells)
    if len(cells) == 1:
        images = found.offsets @ inverse[0]
    else:
        which = check_batch("radius_graph", batch, len(positions))[0][found.src]
        images = np.einsum("ed,edk->ek", found.offsets, inverse[which])
    return edges, np.ascontiguousarray(np.rint(images)[:, :dim]), found.reverse


def _nearest(
    positions: Array,
    nearest: int,
    cell: Array | None,
    pbc: npt.ArrayLike | None,
    batch: npt.ArrayLike | None,
    parts: Parts,
) -> tuple[Neighbours, Array]:
    """Check the arguments of `knn_graph`; return what is nearest, and the cells."""
    caller = "knn_graph"
    points, owner, cells, periodic = _checked(caller, positions, cell, pbc, batch)
    nearest = check_count(f"{caller}: nearest", nearest)
    if nearest == 0:
        raise ValueError(f"{caller}: nearest: expected at least 1, got 0")
    counts = np.full(len(points), nearest)
    alone = ~periodic[np.minimum(owner, len(cells) - 1)].any(1)
    group = np.unique(owner, return_inverse=True)[1]
    counts[alone] = np.minimum(nearest, np.bincount(group)[group[alone]] - 1)
    search = Search(caller, points, owner, 0.0, cells, periodic)
    return search.nearest(counts, parts), cells


def _near(
    positions: Array,
    cutoff: object,
    cell: Array | None,
    pbc: npt.ArrayLike | None,
    batch: npt.ArrayLike | None,
    parts: Parts,
) -> tuple[Neighbours, Array]:
    """Check the arguments of `radius_graph`; return what is near, and the cells."""
    caller = "radius_graph"
    points, owner, cells, periodic = _checked(caller, positions, cell, pbc, batch)
    distance = check_cutoff(caller, cutoff)
    return Search(caller, points, owner, distance, cells, periodic).within(parts), cells


def _checked(
    caller: str,
    positions: Array,
    cell: Array | None,
    pbc: npt.ArrayLike | None,
    batch: npt.ArrayLike | None,
) -> tuple[Array, Indices, Array, npt.NDArray[np.bool_]]:
    """Return points, their graphs, cells and where these are periodic."""
    points = check_points(caller, positions)
    owner, graphs = check_batch(caller, batch, len(points))
    cells, periodic = check_cell(caller, cell, pbc, graphs, positions.shape[1])
    if not np.isfinite(points).all():
        raise ValueError(f"{caller}: positions: expected finite numbers, got others")
    if abs(points).max(initial=0) > 1e150:
        raise ValueError(f"{caller}: positions: expected numbers up to 1e150, got larger ones")
    return points, owner, cells, periodic


def _results(positions: Array, found: Neighbours) -> tuple[Graph, Array, Array]:
    """Return the graph, vectors and offsets of a search in the precision of the positions."""
    nodes, dim = positions.shape
    graph = Graph.__new__(Graph)
    graph._fill("Graph", found.src, found.dst, None, nodes, nodes, len(found.src))
    dtype = positions.dtype.newbyteorder("=")
    vectors, offsets = (
        np.ascontiguousarray(a[:, :dim], dtype) for a in (found.vectors, found.offsets)
    )
    return graph, vectors, offsets


def check_points(caller: str, positions: Array) -> Array:
    """Return points in one to three dimensions as float64 in three, the others zero."""
    check_array(f"{caller}: positions", positions, on_host=True)
    if positions.ndim != 2 or not 1 <= positions.shape[1] <= 3:
        raise ValueError(
            f"{caller}: positions: expected shape (num_nodes, 3), or with 1 or 2 for other "
            f"dimensions, got {positions.shape}"
        )
    points = np.zeros((len(positions), 3))
    points[:, : positions.shape[1]] = positions
    return points


def check_cutoff(caller: str, cutoff: object) -> float:
    """Return a distance whose square is in range."""
    if isinstance(cutoff, bool) or not isinstance(cutoff, (int, float, np.integer, np.floating)):
        raise TypeError(f"{caller}: cutoff: expected a number, got {cutoff!r}")
    if not 1e-150 < cutoff < 1e150:  # the square of others overflows or underflows
        raise ValueError(
            f"{caller}: cutoff: expected a positive number, 1e-150 to 1e150, got {cutoff!r:.30}"
        )
    return float(cutoff)


def check_batch(
    caller: str, batch: npt.ArrayLike | None, count: int
) -> tuple[npt.NDArray[np.int64], int | None]:
    """Return the graph of each point, and the number of graphs that `batch` has."""
    if batch is None:
        return np.zeros(count, np.int64), None
    owner = check_indices(f"{caller}: batch", batch).astype(np.int64)
    if len(owner) != count or owner.min(initial=0) < 0:
        raise ValueError(
            f"{caller}: batch: expected num_nodes={count} numbers from 0 on, "
            f"got {len(owner)} from {owner.min(initial=0)}"
        )
    return owner, 1 + int(owner.max(initial=0))


def check_cell(
    caller: str, cell: object, pbc: object, graphs: int | None, dim: int = 3
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return a cell in space for each graph, or one for all, and where it is periodic."""
    if cell is None:
        if pbc is not None and np.any(np.asarray(pbc)):
            raise ValueError(f"{caller}: pbc: expected a cell beside it, got none")
        return np.eye(3)[None], np.zeros((1, 3), bool)
    array = check_array(f"{caller}: cell", cell, on_host=True)
    try:
        periodic = np.ones(dim, bool) if pbc is None else np.asarray(pbc)
    except ValueError:  # ragged rows
        periodic = np.empty(0)
    rows = [len(a) for a, ndim in ((array, 3), (periodic, 2)) if a.ndim == ndim]
    graphs = 1 if graphs is None else max(graphs, *rows, 1)
    if array.shape not in ((dim, dim), (graphs, dim, dim)):
        raise ValueError(
            f"{caller}: cell: expected shape ({dim}, {dim}) or "
            f"(num_graphs={graphs}, {dim}, {dim}), got {array.shape}"
        )
    if periodic.shape not in ((dim,), (graphs, dim)) or periodic.dtype != bool:
        raise ValueError(
            f"{caller}: pbc: expected {_NUMBERS[dim]} bool, or {_NUMBERS[dim]} for each of "
            f"num_graphs={graphs}, got {pbc!r}"
        )
    array, periodic = array.reshape(-1, dim, dim), periodic.reshape(-1, dim)
    cells: Array = np.zeros((max(len(array), len(periodic)), 3, 3))
    along = np.zeros(cells.shape[:2], bool)
    cells[:, :dim, :dim], along[:, :dim] = array, periodic
    cells = _completed(cells, along)
    largest = abs(cells).max(2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        units = cells / largest  # whose products are in range
        spanned = np.isfinite(units) & (abs(np.linalg.det(units)) > 1e-14)[:, None, None]
    if not spanned.all():
        raise ValueError(f"{caller}: cell: expected finite vectors that span a volume, got others")
    return cells, along


_NUMBERS = "no", "one", "two", "three"


def _completed(cells: Array, periodic: npt.NDArray[np.bool_]) -> Array:
    """Replace zero vectors of directions that are not periodic by unit vectors normal to others."""
    missing = ~cells.any(2) & ~periodic
    for k in np.flatnonzero(missing.any(1) & np.isfinite(cells).all((1, 2))):
        cells[k, missing[k]] = np.linalg.svd(cells[k])[2][3 - missing[k].sum() :]
    return cells
