"""Rows that other ranks own: a plan of the messages that fetch them, and of its transpose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._call.indices import pack_rows
from .._call.memory import new_array
from ._mpi import segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._mpi import Counts, Engine, Values


def joined(lengths: Counts) -> Counts:
    """Return the first row of each rank, and the number of all rows."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def by_rank(ranks: Counts, size: int) -> tuple[Counts, Counts]:
    """Return the order in which rows go to these ranks, and how many go to each."""
    offsets, order = pack_rows(ranks, size)
    return (order - 1).astype(np.int64), np.diff(offsets).astype(np.int64)


class Transfer:
    """Messages that fetch rows of other ranks, planned by two exchanges of counts and numbers.

    `ranges` holds the first row of each rank and the number of all rows, `numbers` the rows to
    fetch: global, ascending and different.
    """

    def __init__(self, engine: Engine, ranges: Counts, numbers: Counts) -> None:
        owners = np.searchsorted(ranges[1:-1], numbers, side="right")
        counts = np.bincount(owners, minlength=engine.size).astype(np.int64)
        wanted, received = engine.push(numbers[:, None], counts)
        self._engine = engine
        self.size = len(numbers)
        self.rows = wanted[:, 0] - ranges[engine.rank]
        """Own rows to send, rank by rank."""
        self.source, self.to = segments(counts), segments(received)
        self.targets, self._places = np.unique(self.rows, return_inverse=True)
        """Own rows that other ranks have, ascending."""

    def fetch(self, own: Values) -> Values:
        """Return the rows [size, width] of the other ranks, given the own ones."""
        found = np.empty((self.size, own.shape[1]), own.dtype)
        return self._engine.exchange(own[self.rows], self.to, found, self.source)

    def collect(self, rows: Values) -> Values:
        """Return to owners what belongs to their rows: its sums for `targets`, in rank order."""
        found = np.empty((len(self.rows), rows.shape[1]), rows.dtype)
        self._engine.exchange(rows, self.source, found, self.to)
        sums = np.zeros((len(self.targets), rows.shape[1]), rows.dtype)
        for _, first, last in self.to:  # a rank has each row once
            sums[self._places[first:last]] += found[first:last]
        return sums


class Halo:
    """Own rows and copies of the rows of others (ghosts), numbered in the order of global numbers.

    Global numbers become local ones in which the ghosts below come first, then the own rows, then
    the ghosts above.
    """

    def __init__(self, engine: Engine, ranges: Counts, numbers: Counts) -> None:
        self.first, self.last = (int(n) for n in ranges[engine.rank : engine.rank + 2])
        self.ghosts = np.unique(numbers[(numbers < self.first) | (numbers >= self.last)])
        """Global numbers of the ghosts."""
        self.below = int(np.searchsorted(self.ghosts, self.first))
        self.owned = self.last - self.first
        self.size = self.owned + len(self.ghosts)
        self.own = slice(self.below, self.below + self.owned)
        self.transfer = Transfer(engine, ranges, self.ghosts)

    def numbers(self) -> Counts:
        """Return the global numbers of all rows."""
        own = np.arange(self.first, self.last)
        return np.concatenate([self.ghosts[: self.below], own, self.ghosts[self.below :]])

    def local(self, numbers: Counts) -> Counts:
        """Return local numbers of global ones."""
        found = numbers - (self.first - self.below)
        outside = (numbers < self.first) | (numbers >= self.last)
        places = np.searchsorted(self.ghosts, numbers[outside])
        found[outside] = places + self.owned * (places >= self.below)
        return found

    def exchange(self, arrays: Sequence[Values]) -> list[Values]:
        """Extend arrays of own rows by the rows of ghosts, in one message for each neighbour."""
        matrices = [flat(array) for array in arrays]
        ghosts = self.transfer.fetch(_side_by_side(matrices))
        found, start = [], 0
        for array, matrix in zip(arrays, matrices, strict=True):
            full: Any = new_array((self.size, matrix.shape[1]), array.dtype)
            columns = slice(start, start + matrix.shape[1])
            full[: self.below] = ghosts[: self.below, columns]
            full[self.own] = matrix
            full[self.own.stop :] = ghosts[self.below :, columns]
            found.append(full.reshape(self.size, *array.shape[1:]))
            start = columns.stop
        return found

    def accumulate(self, arrays: Sequence[Values]) -> list[Values]:
        """Add the rows of ghosts to those of their owners, in place; return views of own rows."""
        matrices = [flat(array) for array in arrays]
        outside = [np.concatenate([f[: self.below], f[self.own.stop :]]) for f in matrices]
        sums = self.transfer.collect(_side_by_side(outside))
        start = 0
        for matrix in matrices:
            columns = slice(start, start + matrix.shape[1])
            matrix[self.own][self.transfer.targets] += sums[:, columns]
            start = columns.stop
        return [array[self.own] for array in arrays]


def flat(array: Values) -> Values:
    """Return the array as a matrix, a view if it is contiguous."""
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _side_by_side(arrays: Sequence[Values]) -> Values:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)
