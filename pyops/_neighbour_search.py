"""Searches of the kernels for points near others: their arguments, results and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _kernels
from ._call.threads import team

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._call.indices import Indices
    from ._call.types import Array

_TOO_FAR, _TOO_MANY = -3, -4
"""Status of the kernel: a point that is too far away, too many images."""


def pairs_within(
    caller: str, queries: Array, points: Array, cutoff: float
) -> tuple[Indices, Indices]:
    """Return the pairs of a query and a point, float64 in three dimensions, closer than a cutoff.

    As int64, in the order of queries, then points.
    """
    none, everywhere = (np.zeros(len(x), np.int64) for x in (queries, points))
    cells, periodic = np.eye(3)[None], np.zeros((1, 3), bool)
    search = Search(caller, points, everywhere, cutoff, cells, periodic, (queries, none))
    found = search.within(Parts())
    return found.dst.astype(np.int64), found.src.astype(np.int64)


class Parts(NamedTuple):
    """Which arrays of an edge a search returns beside its ends; offsets are zero without."""

    vectors: bool = False
    offsets: bool = False
    reverse: bool = False

    @property
    def wanted(self) -> int:
        """The parts as bits, for kernels."""
        return self.vectors + 2 * self.offsets + 4 * self.reverse


class Neighbours(NamedTuple):
    """Edges from points to queries."""

    src: Indices
    dst: Indices
    vectors: Array
    offsets: Array
    reverse: Indices


class Search:
    """A search for points near queries of the same graph, by kernels.

    Points and queries are float64 in three dimensions, finite, with their graphs. Without queries
    they are the points, and a point is no neighbour of itself.
    """

    def __init__(
        self,
        caller: str,
        points: Array,
        owner: Indices,
        cutoff: float,
        cells: Array,
        periodic: npt.NDArray[np.bool_],
        queries: tuple[Array, Indices] | None = None,
    ) -> None:
        others, of_others = (points, owner) if queries is None else queries
        if len(cells) == 1 and max(owner.max(initial=0), of_others.max(initial=0)) > 0:
            both = np.unique(np.concatenate([owner, of_others]), return_inverse=True)[1]
            owner, of_others = both[: len(owner)], both[len(both) - len(of_others) :]
        graphs = 1 + int(max(owner.max(initial=0), of_others.max(initial=0)))
        sizes = len(others), len(points), max(len(cells), graphs), len(cells)
        self._caller, self._cutoff, self._queries = caller, cutoff, len(others)
        self._sizes = *sizes, int(queries is None), team(), cutoff
        flags = periodic.astype(np.int32)
        self._arrays = others.T, points.T, of_others, owner, cells.T, flags.T
        self._excess = np.zeros(1)

    def within(self, parts: Parts) -> Neighbours:
        """Return what is closer than the cutoff, sorted by query, point and image."""
        kernels, offsets = _kernels.pyops_neighbour_search, np.empty(self._queries + 1, np.int64)
        self._check(kernels.count_neighbours(*self._sizes, *self._arrays, offsets, self._excess))
        found = _empty(int(offsets[-1]) - 1, parts)
        ends = found.src, found.dst, found.vectors.T, found.offsets.T, found.reverse
        self._check(
            kernels.list_neighbours(
                *self._sizes, 0, parts.wanted, *self._arrays, offsets, *ends, self._excess
            )
        )
        return found

    def nearest(self, counts: Indices, parts: Parts) -> Neighbours:
        """Return the nearest points of each query, as many as `counts` has."""
        offsets = 1 + np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        found = _empty(int(offsets[-1]) - 1, parts)
        ends = found.src, found.dst, found.vectors.T, found.offsets.T
        self._check(
            _kernels.pyops_neighbour_search.nearest_neighbours(
                *self._sizes, 0, parts.wanted, *self._arrays, offsets, *ends, self._excess
            )
        )
        return found

    def _check(self, status: int) -> None:
        caller, excess = self._caller, self._excess[0]
        if status == _TOO_FAR:
            raise ValueError(
                f"{caller}: positions: expected points within {2**31:g} cells of the first, got "
                f"one {excess:.2g} cells away"
            )
        if status == _TOO_MANY and not self._cutoff:
            raise ValueError(
                f"{caller}: nearest: expected fewer, got as many as {10**6} images of the cell "
                "do not have"
            )
        if status == _TOO_MANY:
            raise ValueError(
                f"{caller}: cell: expected one of which the cutoff of {self._cutoff:g} reaches at "
                f"most {10**6} images, got one of which it reaches {excess:.2g}"
            )
        if status < 0:
            raise ValueError(f"{caller}: positions and cell: expected finite numbers, got others")
        if status:  # an interrupt has raised
            raise MemoryError(f"{caller}: not enough memory")


def _empty(edges: int, parts: Parts) -> Neighbours:
    """Return arrays for so many edges; those that no kernel writes are zero."""
    return Neighbours(
        np.empty(edges, np.int32),
        np.empty(edges, np.int32),
        np.empty((edges if parts.vectors else 0, 3)),
        np.zeros((edges, 3)),
        np.empty(edges if parts.reverse else 0, np.int64),
    )
