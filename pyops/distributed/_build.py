"""Distributed graphs from the edges of each rank: numbers before and after a partition, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._call.arrays import check_size
from .._call.indices import MOST_EDGES, check_bounds, check_count, check_indices, check_integers
from ._graph import CALLER, DistributedGraph
from ._halo import Transfer, by_rank, joined
from ._mpi import segments

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._call.indices import Indices
    from ._communicator import Communicator, Range
    from ._mpi import Counts, Engine


class Nodes:
    """Nodes of one kind: the ranges of ranks, and numbers before and after a partition."""

    def __init__(
        self, engine: Engine, ranges: Counts, part: Indices | None, parts: int | None
    ) -> None:
        first, last = ranges[engine.rank : engine.rank + 2].tolist()
        self.ranges, self._before, self._engine = ranges, ranges, engine
        self.numbers = self.places = np.arange(first, last)
        self.owners = np.arange(engine.size)
        """Rank of each part."""
        self.parts: Counts | None = None
        """First node of each of a fixed number of parts, and the number of nodes."""
        if parts is not None:
            self.owners = np.arange(parts) * engine.size // parts
            if part is None:
                bounds = np.arange(1, parts) * int(ranges[-1]) // parts
                part = np.searchsorted(bounds, self.numbers, side="right")
        self._moved = part is not None
        if part is not None:
            counts = np.bincount(part, minlength=len(self.owners)).astype(np.int64)
            table = engine.gather(counts)
            firsts = joined(table.sum(0))
            self.ranges = firsts[np.searchsorted(self.owners, np.arange(engine.size + 1))]
            starts = firsts[:-1] + table[: engine.rank].sum(0)
            order = np.argsort(part, kind="stable")
            within = np.arange(len(part)) - (np.cumsum(counts) - counts)[part[order]]
            self.places = np.empty_like(self.numbers)
            self.places[order] = starts[part[order]] + within
            pairs = np.stack([self.places, self.numbers], 1)[order]
            to = np.bincount(self.owners, counts, engine.size).astype(np.int64)
            moved, _ = engine.push(pairs, to)
            self.numbers = moved[np.argsort(moved[:, 0]), 1]
            self.parts = None if parts is None else firsts

    def renumbered(self, numbers: Counts) -> Counts:
        """Return the numbers of nodes after the partition."""
        if not self._moved:
            return numbers
        first, last = self._before[self._engine.rank : self._engine.rank + 2].tolist()
        outside = np.flatnonzero((numbers < first) | (numbers >= last))
        unique, where = np.unique(numbers[outside], return_inverse=True)
        places = Transfer(self._engine, self._before, unique).fetch(self.places[:, None])
        if len(outside) == len(numbers):
            found: Counts = places[where, 0]
            return found
        found = self.places.take(numbers - first, mode="clip")
        found[outside] = places[where, 0]
        return found


class Edges:
    """Numbers of edges before and after they were sent to the owners of their destinations."""

    def __init__(self, engine: Engine, lengths: Counts) -> None:
        self._engine, self.ranges = engine, joined(lengths)
        self._moved: tuple[Counts, Counts] | None = None

    @property
    def numbers(self) -> Counts:
        """Numbers, as given through all ranks, of the edges that this rank has."""
        return self._given() if self._moved is None else self._moved[0]

    @property
    def places(self) -> Counts:
        """Row, through all ranks, of each edge that this rank has given."""
        return self._given() if self._moved is None else self._moved[1]

    def _given(self) -> Counts:
        return np.arange(*self.ranges[self._engine.rank : self._engine.rank + 2])

    def moved(self, src: Counts, dst: Counts, owners: Counts) -> tuple[Counts, Counts]:
        """Send each edge to the rank in whose range its destination is; return the own ends."""
        engine = self._engine
        to = np.searchsorted(owners[1:-1], dst, side="right")
        order, counts = by_rank(to, engine.size)
        ends = [end[order] for end in (src, dst, self.numbers)]
        rows, received = engine.push(np.stack(ends, 1), counts)
        self.ranges = joined(engine.gather(np.array([len(rows)]))[:, 0])
        first, last = self.ranges[engine.rank : engine.rank + 2].tolist()
        answer = np.empty((len(src), 1), np.int64)
        here = np.arange(first, last)[:, None]
        engine.exchange(here, segments(received), answer, segments(counts))
        places = np.empty(len(src), np.int64)
        places[order] = answer[:, 0]
        own = np.ascontiguousarray(rows.T)
        self._moved = own[2], places
        return own[0], own[1]


def build(
    comm: Communicator,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    owned: Range,
    owned_src: Range | None,
    part: npt.ArrayLike | None,
    part_src: npt.ArrayLike | None,
    reproducible: int | None,
) -> DistributedGraph:
    """See `Communicator.graph`."""
    engine = comm._engine

    def check() -> tuple[Any, ...]:
        ends = [check_indices(f"{CALLER}: {n}", a) for n, a in (("src", src), ("dst", dst))]
        if len(ends[0]) != len(ends[1]):
            lengths = f"{len(ends[0])} and {len(ends[1])}"
            raise ValueError(f"{CALLER}: src and dst: expected equal lengths, got {lengths}")
        if owned_src is None and part_src is not None:
            raise ValueError(f"{CALLER}: part_src: expected None without owned_src, got parts")
        own = _check_range("owned", owned), _check_range("owned_src", owned_src or owned)
        count, what = comm.size, "number of ranks"
        if reproducible is not None:
            count, what = check_size(f"{CALLER}: reproducible", reproducible), "number of parts"
        parts = [
            None if p is None else _check_part(n, p, last - first, count, what)
            for (n, p), (first, last) in zip(
                (("part", part), ("part_src", part_src)), own, strict=True
            )
        ]
        return *(end.astype(np.int64, copy=False) for end in ends), *own, *parts

    given = (*(a is not None for a in (owned_src, part, part_src)), reproducible)
    ends_src, ends_dst, own, own_src, parts, parts_src = comm._together(
        CALLER, check, lambda _: given
    )
    table = engine.gather(np.array([*own, *own_src, len(ends_src)], np.int64))
    comm._together(CALLER, lambda: _check_ranges(table))
    ranges, ranges_src = (np.concatenate([table[:, c], table[-1:, c + 1]]) for c in (0, 2))

    def check_ends() -> None:
        check_bounds(f"{CALLER}: src", ends_src, int(ranges_src[-1]), "number of sources")
        check_bounds(f"{CALLER}: dst", ends_dst, int(ranges[-1]), "number of destinations")
        outside = (ends_dst < own[0]) | (ends_dst >= own[1])
        if parts is None and reproducible is None and outside.any():
            where = int(np.argmax(outside))
            raise IndexError(
                f"{CALLER}: dst: expected own nodes, from {own[0]} to {own[1]}-1, got "
                f"{ends_dst[where]} at {where}; `part` sends edges to the owners of destinations"
            )

    comm._together(CALLER, check_ends)
    destinations = Nodes(engine, ranges, parts, reproducible)
    sources = destinations
    if owned_src is not None:
        sources = Nodes(engine, ranges_src, parts_src, reproducible)
    numbers = sources.renumbered(ends_src), destinations.renumbered(ends_dst)
    edges = Edges(engine, table[:, 4])
    if parts is not None or reproducible is not None:
        numbers = edges.moved(*numbers, destinations.ranges)
    return DistributedGraph(comm, *numbers, sources, destinations, edges)


def _check_range(name: str, value: object) -> Range:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{CALLER}: {name}: expected (first, last), got {value!r}")
    first, last = (check_count(f"{CALLER}: {name}", end, MOST_EDGES) for end in value)
    if first > last:
        raise ValueError(f"{CALLER}: {name}: expected first <= last, got ({first}, {last})")
    return first, last


def _check_ranges(table: Counts) -> None:
    """Check that the ranges of the ranks follow each other from 0 on."""
    for name, column in (("owned", 0), ("owned_src", 2)):
        before = 0
        for rank, (first, last) in enumerate(table[:, column : column + 2].tolist()):
            if first != before:
                raise ValueError(
                    f"{CALLER}: {name}: expected ranges that follow each other in the order of "
                    f"ranks, from {before} on rank {rank}, got ({first}, {last})"
                )
            before = last


def _check_part(name: str, part: object, length: int, size: int, what: str) -> Indices:
    label = f"{CALLER}: {name}"
    parts = check_integers(label, part)
    if parts.shape != (length,):
        raise ValueError(f"{label}: expected shape ({length},), got {parts.shape}")
    check_bounds(label, parts, size, what)
    return parts
