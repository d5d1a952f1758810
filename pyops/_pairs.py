"""Pairs of points within a cutoff, by a cell list in time linear in points and pairs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ._call.indices import Indices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._call.types import Array

Owner: TypeAlias = Indices | int

_FINE = 8
"""Bins within a cutoff along the last axis; along the other axes a bin is one cutoff wide."""
_POINTS, _CANDIDATES = 4096, 2**15
"""Points, and candidate pairs, of a block; these fit in L2."""
_ALL = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]


def close_pairs(
    points: Array, others: Array, cutoff: float, owner: Owner = 0, of_others: Owner = 0
) -> tuple[Indices, Indices]:
    """Return the pairs of points [n, 3] and others [m, 3] within a cutoff, up to rounding.

    Points pair only with others of an equal owner, a non-negative integer.
    """
    n = len(points)
    both = np.concatenate([points, others])
    owners = [np.broadcast_to(o, len(x)) for o, x in ((owner, points), (of_others, others))]
    columns, across, keys, along = _bins(both, np.concatenate(owners), cutoff)
    orders = np.argsort(keys[:n], kind="stable"), n + np.argsort(keys[n:], kind="stable")
    i, k = _search(both, orders, columns, across, keys, along, cutoff, _ALL)
    return i.astype(np.int64), k.astype(np.int64) - n


def close_pairs_within(points: Array, cutoff: float, owner: Owner = 0) -> tuple[Indices, Indices]:
    """Return the pairs among points alone, each in one direction only."""
    owner = np.broadcast_to(owner, len(points))
    columns, across, keys, along = _bins(points, owner, cutoff)
    order = np.argsort(keys, kind="stable")
    return _search(points, (order, order), columns, across, keys, along, cutoff, _ALL[4:])


def _bins(x: Array, owner: Indices, cutoff: float) -> tuple[Indices, int, Indices, int]:
    """Return the occupied columns of bins, the row stride of columns, and the bin of each point.

    Also returns the column length: column c has the bins from c * length on.
    """
    if len(x) == 0:
        return np.zeros(0, np.int64), 1, np.zeros(0, np.int64), 1
    origin = x.min(0)
    extent = x.max(0) - origin
    width = cutoff * (1 + 1e-9) + 1e-15 * extent.max()  # the slack exceeds the rounding of bins
    graph = np.unique(owner, return_inverse=True)[1] if np.ptp(owner) else 0
    sizes = width, width, width / _FINE
    bins = [np.floor((x[:, d] - origin[d]) / sizes[d]) for d in range(3)]
    across, up, along = (_close_up(b, r) for b, r in zip(bins, (1, 1, _FINE), strict=True))
    # Bins are compacted to the range of the points, so that no index below overflows.
    across = _close_up(graph * (across.max() + 2) + across, 1)
    rows = int(up.max()) + 2
    columns, column = np.unique(across * rows + up, return_inverse=True)
    length = int(along.max()) + _FINE + 1
    return columns, rows, column * length + along, length


def _close_up(bins: Array | Indices, reach: int) -> Indices:
    """Renumber bins from 1: distances up to `reach` are kept, larger gaps shrink to reach + 1."""
    known, place = np.unique(bins, return_inverse=True)
    steps = np.minimum(np.diff(known), reach + 1).astype(np.int64)
    return (1 + np.concatenate([[0], np.cumsum(steps)]))[place]


def _search(
    x: Array,
    orders: tuple[Indices, Indices],
    columns: Indices,
    across: int,
    keys: Indices,
    along: int,
    cutoff: float,
    directions: list[tuple[int, int]],
) -> tuple[Indices, Indices]:
    """Return the pairs of a point of the first order and one of the second within the cutoff.

    If both orders are the same, a point pairs only with later points of its own column.
    """
    order, other = orders
    small: np.dtype[np.signedinteger] = np.dtype("i4" if len(x) < 2**31 else "i8")
    empty = np.zeros(0, small)
    if len(order) == 0 or len(other) == 0:
        return empty, empty
    wanted = columns[:, None] + [dx * across + dy for dx, dy in directions]
    there = np.minimum(np.searchsorted(columns, wanted), len(columns) - 1)
    begins = np.where(columns[there] == wanted, there, len(columns)) * along
    middle, edges = keys[order], keys[other]
    mine = [np.ascontiguousarray(x[order, d]) for d in range(3)]
    theirs = [np.ascontiguousarray(x[other, d]) for d in range(3)]
    found_i, found_k = [empty], [empty]
    limit = (cutoff * (1 + 1e-9)) ** 2
    for start in range(0, len(order), _POINTS):
        own = middle[start : start + _POINTS]
        centre = begins[own // along] + (own % along)[:, None]
        first = np.searchsorted(edges, centre - _FINE)
        if order is other:
            first[:, 0] = np.arange(start, start + len(own)) + 1
        counts = np.searchsorted(edges, centre + _FINE, side="right") - first
        owner = np.repeat(np.arange(start, start + len(own), dtype=small), len(directions))
        for part, chosen in _parts(first.ravel(), counts.ravel(), small):
            repeats = counts.ravel()[part]
            square = np.zeros(len(chosen))
            for a, b in zip(mine, theirs, strict=True):
                away = b[chosen]
                away -= np.repeat(a[owner[part]], repeats)
                away *= away
                square += away
            near = np.flatnonzero(square < limit)
            found_i.append(np.repeat(owner[part], repeats)[near])
            found_k.append(chosen[near])
    rows, columns = np.concatenate(found_i), np.concatenate(found_k)
    return order.astype(small)[rows], other.astype(small)[columns]


def _parts(
    first: Indices, counts: Indices, small: np.dtype[np.signedinteger]
) -> Iterator[tuple[slice, Indices]]:
    """Yield the indices of all ranges, a block of ranges at a time."""
    ends = np.cumsum(counts)
    total = int(ends[-1])
    cuts = np.searchsorted(ends, np.arange(_CANDIDATES, total, _CANDIDATES))
    for a, b in itertools.pairwise(np.unique([0, *cuts, len(ends)])):
        before = ends[a] - counts[a]
        shifts = first[a:b] - (ends[a:b] - counts[a:b] - before)
        chosen = np.arange(ends[b - 1] - before, dtype=small)
        chosen += np.repeat(shifts.astype(small), counts[a:b])
        yield slice(a, b), chosen
