"""Distributed graphs in a fixed number of parts, for the same bits on any number of ranks.

A rank has some of the parts, runs a call on one after another, and what they add to the same row is
added in the order of parts, wherever they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..graph import Graph
from ._halo import by_rank, flat, joined
from ._mpi import segments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .._call.indices import Indices
    from .._call.phase import Phase
    from ._build import Nodes
    from ._halo import Halo
    from ._mpi import Counts, Engine, Values


RESULTS = "y", "dgy"
"""Outputs with the rows of results."""


class Part(NamedTuple):
    """Destinations of a part, the entries into them, and the sources of these."""

    graph: Graph
    rows: slice
    entries: Counts
    sources: Counts
    """Local numbers, ascending."""

    def of(self, axes: Collection[str]) -> dict[str, Any]:
        """Return the rows of this part, for axes that are distributed."""
        rows = {"num_src": self.sources, "num_dst": self.rows}
        rows |= {"num_edges": self.entries, "num_entries": self.entries}
        return {name: index for name, index in rows.items() if name in axes}

    def shares(self, degrees: Values) -> Values:
        """Return sqrt(out-degree in this part / out-degree) of each source.

        `degrees` are those of local sources over all ranks.
        """
        own = np.diff(self.graph._index("out_offsets"))
        found: Values = np.sqrt(own / np.maximum(degrees[self.sources], 1))
        return found


class PairedPart(NamedTuple):
    """Edges out of and into the nodes of a part, for sums over the edges into a source.

    The part of its source computes the row of an edge. At most two parts add to the gradient by an
    edge, so that these sums have no order.
    """

    graph: Graph
    entries: Counts | slice
    """Rows of the edges among those of this rank."""
    others: Counts
    """Positions of the edges whose sources belong to other parts."""

    def run(
        self,
        phase: Phase,
        slots: Sequence[str],
        arguments: Sequence[Values | None],
        options: Mapping[str, object],
        numbers: Mapping[str, Counts],
        wanted: Collection[str] | None,
    ) -> list[Values | None]:
        """Return the outputs of a phase for this part, as `Parts.run` does for another one.

        `numbers` are options that number rows of edges of this rank.
        """
        given = [
            a[self.entries] if a is not None and name == "num_edges" else a
            for name, a in zip(slots, arguments, strict=True)
        ]
        roles = (slot.role for slot in phase.slots if phase.seeds or slot.role != "gy")
        self._clear(a for a, role in zip(given, roles, strict=True) if role == "gy")
        rows = {name: self.positions(r) for name, r in numbers.items()}
        found = [*phase.run([self.graph, *given], {**options, **rows}, wanted)]
        self._clear(a for a, name in zip(found, phase.outputs, strict=True) if name in RESULTS)
        return found

    def positions(self, rows: Counts) -> Counts:
        """Return row numbers of the edges of this rank as positions among those of the part."""
        places = np.full(len(rows) + 1, -1)  # the last for -1, which is no row
        places[: len(rows)][self.entries] = np.arange(self.graph.num_edges)
        return places[rows[self.entries]]

    def _clear(self, arrays: Iterable[Values | None]) -> None:
        for array in arrays:
            if array is not None:
                array[self.others] = 0


def paired_parts(src: Counts, dst: Counts, firsts: Counts) -> list[PairedPart]:
    """Return the parts of a rank, given the ends of its edges and the first node of each part."""
    parts, edges = len(firsts) - 1, np.arange(len(src))
    ends = [np.searchsorted(firsts, end, side="right") - 1 for end in (src, dst)]
    twice = np.concatenate([edges, edges[ends[0] != ends[1]]])
    owners = np.concatenate([ends[0], ends[1][ends[0] != ends[1]]])
    inside = (owners >= 0) & (owners < parts)
    twice, owners = twice[inside], owners[inside]
    order = np.lexsort((twice, dst[twice], owners))
    bounds = np.searchsorted(owners[order], np.arange(parts + 1))
    found = []
    for part in range(parts):
        entries = twice[order[bounds[part] : bounds[part + 1]]]
        nodes, both = np.unique([src[entries], dst[entries]], return_inverse=True)
        both = both.reshape(2, -1)
        others = np.flatnonzero(ends[0][entries] != part)
        found.append(PairedPart(Graph(both[0], both[1], len(nodes)), entries, others))
    return found


class Parts:
    """Parts of a rank, and the messages that bring what they add to rows to the owners of these.

    `firsts` holds the first own destination of each part of this rank, and the number of own
    destinations; `number` is the number of the first part.
    """

    def __init__(self, local: Graph, firsts: Counts, number: int) -> None:
        self._number = number
        where = np.searchsorted(firsts[1:], local.dst, side="right")
        ends = joined(np.bincount(where, minlength=len(firsts) - 1))
        # Kernels add the edges out of a node in this order, which no number of ranks changes.
        order, _ = by_rank(local.dst.astype(np.int64), local.num_dst)
        self.parts = []
        for k in range(len(firsts) - 1):
            rows = slice(int(firsts[k]), int(firsts[k + 1]))
            entries = order[ends[k] : ends[k + 1]]
            sources, src = np.unique(local.src[entries], return_inverse=True)
            dst = local.dst[entries] - rows.start
            graph = Graph(src, dst, len(sources), rows.stop - rows.start)
            self.parts.append(Part(graph, rows, entries, sources.astype(np.int64)))

    def plan(self, engine: Engine, halo: Halo, ranges: Counts) -> None:
        """Agree with other ranks on messages, given the ranges of sources; collective."""
        self._engine = engine
        counts = [len(part.sources) for part in self.parts]
        places = np.concatenate([np.empty(0, np.int64), *(part.sources for part in self.parts)])
        numbers = halo.numbers()[places]
        which = np.repeat(self._number + np.arange(len(counts)), counts)
        owners = np.searchsorted(ranges[1:-1], numbers, side="right")
        self._sent, outgoing = by_rank(owners, engine.size)
        found, incoming = engine.push(np.stack([numbers, which], 1)[self._sent], outgoing)
        self._to, self._source = segments(outgoing), segments(incoming)
        self._order = np.lexsort((found[:, 1], found[:, 0]))
        rows = found[self._order, 0] - halo.first
        self._starts = np.flatnonzero(np.diff(rows, prepend=-1))
        self._targets = rows[self._starts]

    def with_edge_ids(self, ids: Indices, rows: int) -> Parts:
        """Return the parts of a graph whose entries have other ids."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found.parts = [
            p._replace(graph=p.graph.with_edge_ids(ids[p.entries], rows)) for p in self.parts
        ]
        return found

    def run(
        self,
        phase: Phase,
        slots: Sequence[str],
        arguments: Sequence[Values | None],
        options: Mapping[str, object],
        wanted: Collection[str] | None,
        axes: Collection[str],
        degrees: Values | None,
    ) -> list[tuple[Values | None, ...]]:
        """Return the outputs of a phase for each part, given the rows of all local sources.

        `slots` are the first axes of the arguments, `axes` those that are distributed. If `degrees`
        are given, those of local sources over all ranks, kernels normalise by them.
        """
        results = tuple(shape[0].text for shape in phase.outputs.values())
        made = []
        for part in self.parts:
            shares = None if degrees is None else part.shares(degrees)
            rows = part.of(axes)
            given = [
                a if a is None or name not in rows else np.ascontiguousarray(a[rows[name]])
                for name, a in zip(slots, arguments, strict=True)
            ]
            given = _scaled(slots, given, shares)
            found = phase.run([part.graph, *given], dict(options), wanted)
            made.append(tuple(_scaled(results, found, shares)))
        return made

    def combine(
        self,
        phase: Phase,
        made: Sequence[Sequence[Values | None]],
        shapes: Sequence[tuple[int, ...] | None],
        dtype: np.dtype[np.generic],
        axes: Collection[str],
    ) -> list[Values | None]:
        """Return the outputs of own rows, and of replicated arrays, from those of the parts."""
        found: list[Values | None] = []
        for k, (name, shape) in enumerate(zip(phase.outputs, shapes, strict=True)):
            axis = phase.outputs[name][0].text
            if shape is None:
                found.append(None)
                continue
            blocks = [block for outputs in made if (block := outputs[k]) is not None]
            whole = np.zeros(shape, dtype)
            if axis == "num_src" and axis in axes:
                self.collect(whole, np.concatenate([np.empty((0, *shape[1:]), dtype), *blocks]))
            elif axis not in axes:
                whole = self.total(blocks, whole)
            elif name == "alpha":  # in the order of destinations
                whole = np.concatenate([whole[:0], *blocks])
            else:
                for part, block in zip(self.parts, blocks, strict=True):
                    whole[part.of(axes)[axis]] = block
            found.append(whole)
        return found

    def combine_pairs(
        self,
        phase: Phase,
        parts: Sequence[PairedPart],
        made: Sequence[Sequence[Values | None]],
        shapes: Sequence[tuple[int, ...] | None],
        dtype: np.dtype[np.generic],
        edges: int,
    ) -> list[Values | None]:
        """Return the outputs of the edges of this rank, and of replicated arrays."""
        found: list[Values | None] = []
        for k, (name, shape) in enumerate(zip(phase.outputs, shapes, strict=True)):
            blocks = [block for outputs in made if (block := outputs[k]) is not None]
            if shape is None:
                found.append(None)
            elif phase.outputs[name][0].text != "num_edges":
                found.append(self.total(blocks, np.zeros(shape, dtype)))
            else:
                whole = np.zeros((edges, *shape[1:]), dtype)
                for part, block in zip(parts, blocks, strict=True):
                    whole[part.entries] += block
                found.append(whole)
        return found

    def total(self, blocks: Sequence[Values], like: Values) -> Values:
        """Return the sum of an array of each part over the parts of all ranks."""
        stack = np.array(blocks, like.dtype).reshape(len(blocks), like.size)
        rows, _ = self._engine.rows(stack)
        found: Values = np.add.reduce(rows, axis=0).reshape(like.shape)
        return found

    def collect(self, whole: Values, rows: Values) -> None:
        """Add the rows of the sources of each part to those of their owners, in part order."""
        matrix = flat(rows)[self._sent]
        received = np.empty((len(self._order), matrix.shape[1]), rows.dtype)
        self._engine.exchange(matrix, self._to, received, self._source)
        if len(received):
            sums = np.add.reduceat(received[self._order], self._starts, axis=0)
            flat(whole)[self._targets] = sums


def own_parts(nodes: Nodes, rank: int, local: Graph) -> Parts:
    """Return the parts of a rank, given all parts of the destinations."""
    first, firsts = firsts_of(nodes, rank)
    return Parts(local, firsts - nodes.ranges[rank], first)


def firsts_of(nodes: Nodes, rank: int) -> tuple[int, Counts]:
    """Return the number of the first part of a rank, and the first node of each of its parts."""
    assert nodes.parts is not None
    first, last = np.searchsorted(nodes.owners, [rank, rank + 1])
    return int(first), nodes.parts[first : last + 1]


def _scaled(
    names: Sequence[str], arrays: Sequence[Values | None], shares: Values | None
) -> list[Values | None]:
    """Scale rows of sources from the normalisation by degrees of a part to that by all."""
    if shares is None:
        return [*arrays]
    return [
        a
        if a is None or name != "num_src"
        else a * shares.astype(a.dtype).reshape(-1, *[1] * (a.ndim - 1))
        for name, a in zip(names, arrays, strict=True)
    ]
