"""Graphs whose nodes and edges are distributed over ranks.

Most of the module is one class, `DistributedGraph`, and its documentation.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._call.indices import MOST_EDGES, Indices, check_count, check_indices
from ..graph import Graph
from ._communicator import Communicator, check_rows, is_tensor, named
from ._half_rows import added, copied
from ._halo import Halo, by_rank
from ._parts import PairedPart, Parts, firsts_of, own_parts, paired_parts

if TYPE_CHECKING:
    from ._build import Edges, Nodes
    from ._check import DistributedCheck
    from ._mpi import Counts, Values

CALLER = "Communicator.graph"


class DistributedGraph:
    """Own nodes and edges of a rank in a distributed graph, made by `Communicator.graph`.

    Operators take it in place of `pyops.Graph`, with arrays of the rank's own rows: `num_src`,
    `num_dst` and `num_edges` are the numbers of these. Each call is collective: it fetches the rows
    of ghosts, and adds the gradients of ghosts to those of their owners. Inputs whose rows are no
    nodes or edges, such as parameters, are the same on all ranks, and so are their gradients, which
    are sums over ranks: the derivatives are those of the sum of the values of all ranks.

    ``local`` is the `pyops.Graph` of the own edges between local nodes: its sources are own rows
    and ghosts, as `exchange` returns them, its destinations own rows. ``comm`` is the communicator.
    """

    _parts: Parts | None
    """Own parts of a reproducible graph."""

    def __init__(
        self,
        comm: Communicator,
        src: Counts,
        dst: Counts,
        sources: Nodes,
        destinations: Nodes,
        edges: Edges,
    ) -> None:
        self.comm = comm
        self._edges = edges
        self._sources, self._destinations = sources, destinations
        halo = Halo(comm._engine, sources.ranges, src)
        first, last = destinations.ranges[comm.rank : comm.rank + 2].tolist()
        numbers = halo.local(src), dst - first
        local = comm._together(CALLER, lambda: Graph(*numbers, halo.size, last - first))
        self._complete(local, halo, {"num_dst": None, "num_entries": None, "num_edges": None})
        if destinations.parts is not None:
            parts = comm._together(CALLER, lambda: own_parts(destinations, comm.rank, local))
            parts.plan(comm._engine, halo, sources.ranges)
            self._parts = parts

    def _complete(self, local: Graph, halo: Halo, axes: dict[str, Halo | None]) -> None:
        self.local, self._halo = local, halo
        self._number = self.comm._numbered()
        """Number of the graph, the same on all ranks."""
        self._axes = {**axes, "num_src": halo}
        """How the axes are distributed that are named: None is by own rows alone."""
        sizes = local._sizes()._replace(num_src=halo.owned)
        self._own = Graph([], [], sizes.num_src, sizes.num_dst)
        object.__setattr__(self._own, "_numbers", sizes)
        self._degrees: Values | None = None
        self._shares: Values | None = None
        self._normalised: Graph | None = None
        self._paired: PairedEdges | None = None
        self._parts = None
        self._torch: Any = None
        """State of `pyops.torch` for its calls."""
        self._name = named(self)

    _here = staticmethod(contextlib.nullcontext)

    @property
    def nodes(self) -> Counts:
        """Numbers of the own destination nodes, as given."""
        return self._destinations.numbers

    @property
    def sources(self) -> Counts:
        """Numbers of the own source nodes, as given."""
        return self._sources.numbers

    @property
    def places(self) -> Counts:
        """Number of the row, through all ranks, of each destination node given as owned."""
        return self._destinations.places

    @property
    def source_places(self) -> Counts:
        """Number of the row, through all ranks, of each source node given as owned."""
        return self._sources.places

    @property
    def edges(self) -> Counts:
        """Numbers of the own edges among those that were given, through all ranks."""
        return self._edges.numbers

    @property
    def edge_places(self) -> Counts:
        """Number of the row, through all ranks, of each edge that this rank has given."""
        return self._edges.places

    @property
    def num_src(self) -> int:
        """Number of own source nodes."""
        return self._halo.owned

    @property
    def num_dst(self) -> int:
        """Number of own destination nodes."""
        return self.local.num_dst

    @property
    def num_edges(self) -> int:
        """Number of rows of edge arrays on this rank."""
        return self.local.num_edges

    @property
    def num_entries(self) -> int:
        """Number of entries (source, destination) into own nodes."""
        return self.local.num_entries

    @property
    def num_ghosts(self) -> int:
        """Number of source nodes of other ranks with edges to own nodes."""
        return len(self._halo.ghosts)

    @property
    def neighbours(self) -> Counts:
        """Ranks that own the ghosts; each sends one message in an exchange."""
        return np.array([rank for rank, _, _ in self._halo.transfer.source], np.int64)

    def __repr__(self) -> str:
        return (
            f"DistributedGraph(num_src={self.num_src}, num_dst={self.num_dst}, "
            f"num_edges={self.num_edges}, num_ghosts={self.num_ghosts}, "
            f"rank={self.comm.rank}, size={self.comm.size})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("DistributedGraph: cannot be pickled, as it belongs to a communicator")

    def exchange(self, x: Any) -> Any:
        """Return the rows of all local sources: ghosts below, own rows, ghosts above.

        Collective. Its transpose is `accumulate`: the backward pass of each is the other.

        Parameters
        ----------
        x : array_like or tensor, shape (num_src, ...)
            Own rows.

        Returns
        -------
        array or tensor, shape (local.num_src, ...)
            Rows as the sources of `local` are numbered; of a tensor differentiable.
        """
        if is_tensor(x):
            from ..torch._ranks import exchanged

            return exchanged(self, x)
        array = self._rows("DistributedGraph.exchange: x", x, self.num_src, "num_src")
        return copied(self._halo.exchange, [array])[0]

    def accumulate(self, full: Any) -> Any:
        """Return own rows to which the rows of ghosts on other ranks were added, in rank order.

        Parameters
        ----------
        full : array_like or tensor, shape (local.num_src, ...)
            A row for each local source.

        Returns
        -------
        array or tensor, shape (num_src, ...)
        """
        if is_tensor(full):
            from ..torch._ranks import accumulated

            return accumulated(self, full)
        label = "DistributedGraph.accumulate: full"
        array = self._rows(label, full, self.local.num_src, "local.num_src")
        return added(self._halo.accumulate, [array.copy()])[0]

    def with_edge_ids(
        self, edge_ids: npt.ArrayLike, num_edges: int | None = None, *, replicated: bool
    ) -> DistributedGraph:
        """Return a graph of the same entries with other edge ids.

        Parameters
        ----------
        edge_ids : array_like of int32 or int64, shape (num_entries,)
            Row of the edge arrays of each entry; ids may repeat.
        num_edges : int, optional
            Number of rows of the edge arrays; by default one more than the largest id, on all
            ranks if the rows are replicated.
        replicated : bool
            Whether all ranks have the same rows, such as one for each type of edge, whose gradients
            are summed over ranks; otherwise each rank has rows of its own.
        """
        caller = "DistributedGraph.with_edge_ids"

        def check() -> tuple[Indices, int]:
            if not isinstance(replicated, (bool, np.bool_)):
                raise TypeError(f"{caller}: replicated: expected True or False, got {replicated!r}")
            if self._parts is not None and not replicated:
                raise ValueError(
                    f"{caller}: replicated: expected True for a reproducible graph, got False"
                )
            ids = check_indices(f"{caller}: edge_ids", edge_ids)
            requested = 1 + int(ids.max(initial=-1)) if num_edges is None else num_edges
            return ids, check_count(f"{caller}: num_edges", requested, MOST_EDGES)

        same = f"graph {self._number}", bool(replicated), num_edges is None
        ids, rows = self.comm._together(caller, check, lambda _: same)
        if replicated:
            most = int(self.comm._engine.gather(np.array([rows])).max())
            rows = most if num_edges is None else rows
            self.comm._agree(f"{caller}: num_edges", (rows,))
        local = self.comm._together(caller, lambda: self.local.with_edge_ids(ids, rows))
        graph = object.__new__(type(self))
        graph.comm, graph._edges = self.comm, self._edges
        graph._sources, graph._destinations = self._sources, self._destinations
        axes: dict[str, Halo | None] = {"num_dst": None, "num_entries": None}
        graph._complete(local, self._halo, axes if replicated else {**axes, "num_edges": None})
        parts = self._parts
        if parts is not None:
            make = parts.with_edge_ids
            graph._parts = self.comm._together(caller, lambda: make(ids, rows))
        return graph

    def _rows(self, label: str, given: npt.ArrayLike, length: int, name: str) -> Values:
        """Return an array of this many rows, of the same dtype and width on all ranks."""

        def check() -> Values:
            array = check_rows(label, given)
            if len(array) != length:
                raise ValueError(f"{label}: expected {name}={length} rows, got {len(array)}")
            return array

        graph = f"graph {self._number}"
        return self.comm._together(label, check, lambda a: (graph, a.dtype.str, a.shape[1:]))

    def _out_degrees(self) -> Values:
        """Return the out-degree of each local source over all ranks, collective at first."""
        if self._degrees is None:
            local = np.diff(self.local._index("out_offsets")).astype(np.float64)
            (own,) = self._halo.accumulate([local])
            (self._degrees,) = self._halo.exchange([own])
        return self._degrees

    def _out_shares(self) -> Values:
        """Return sqrt(local out-degree / out-degree) of each local source, collective at first."""
        if self._shares is None:
            whole = self._out_degrees()
            local = np.diff(self.local._index("out_offsets"))
            self._shares = np.sqrt(local / np.maximum(whole, 1))
        return self._shares

    def _normalising(self) -> Graph:
        """Return the local graph with the out-degrees of all ranks, for forward passes.

        Then factors, and so results, are those of the whole graph to the last bit.
        """
        if self._normalised is None:
            self._normalised = copy.copy(self.local)
            offsets = 1 + np.concatenate([[0], np.cumsum(self._out_degrees())]).astype(np.int64)
            packed = {**self.local._packed, "out_offsets": offsets}
            for name, value in {"_packed": packed, "_ready": {}, "_copies": {}}.items():
                object.__setattr__(self._normalised, name, value)
        return self._normalised

    def _pairs(self) -> PairedEdges:
        """Return the own edges and those out of own nodes, collective at first."""
        if self._paired is None:
            self._paired = PairedEdges(self)
        return self._paired

    def _index(self, name: str) -> Indices:
        """Return an index array of the own entries, see `Graph`."""
        return self.local._index(name)

    def _check(self, *arguments: Any) -> DistributedCheck:
        """Return the check of `pyops.testing.check_gradients` for an operator on this graph."""
        from ._check import DistributedCheck

        return DistributedCheck(*arguments)


class PairedEdges:
    """Own edges and copies of those out of own nodes, for sums over the edges into a source.

    The rank that owns the source of an edge has all edges into it. There the row of the edge is
    computed, and sent to the owner of the edge.
    """

    def __init__(self, graph: DistributedGraph) -> None:
        engine, halo, local = graph.comm._engine, graph._halo, graph.local
        (numbers,) = halo.exchange([np.arange(halo.first, halo.last)])
        src, dst = numbers[local.src], halo.first + local.dst.astype(np.int64)
        ranges = graph._edges.ranges
        edges = np.arange(*ranges[engine.rank : engine.rank + 2])
        owners = np.searchsorted(graph._sources.ranges[1:-1], src, side="right")
        cut = np.flatnonzero(owners != engine.rank)
        order, counts = by_rank(owners[cut], engine.size)
        rows, _ = engine.push(np.stack([edges, src, dst], 1)[cut[order]], counts)
        rows = rows[np.argsort(rows[:, 0])]
        self.halo = Halo(engine, ranges, rows[:, 0])
        below = self.halo.below
        ends = [
            np.concatenate([rows[:below, c], own, rows[below:, c]])
            for c, own in ((1, src), (2, dst))
        ]
        nodes = np.unique(np.concatenate(ends))
        src, dst = (np.searchsorted(nodes, end) for end in ends)
        self.graph = Graph(src, dst, len(nodes))
        self.others = np.flatnonzero((ends[0] < halo.first) | (ends[0] >= halo.last))
        """Edges whose sources belong to other ranks."""
        self.parts = [PairedPart(self.graph, slice(None), self.others)]
        """One, or those of a reproducible graph."""
        if graph._parts is not None:
            _, firsts = firsts_of(graph._destinations, engine.rank)
            self.parts = paired_parts(ends[0], ends[1], firsts)

    def exchange(self, rows: Counts) -> Counts:
        """Return row numbers of all edges here, given those of the own ones."""
        (found,) = self.halo.exchange([rows])
        return found

    def local(self, label: str, given: Counts) -> Counts:
        """Return rows of the edges here, for row numbers through all ranks."""
        halo = self.halo
        inside = (given >= halo.first) & (given < halo.last)
        ghost = np.isin(given, halo.ghosts)
        wrong = (given >= 0) & ~inside & ~ghost
        if wrong.any():
            raise ValueError(
                f"{label}: expected the reverse of an edge to run from its destination to its "
                f"source, got {given[wrong][0]}, which does not"
            )
        found = np.full(len(given), -1)
        found[given >= 0] = halo.local(given[given >= 0])
        return found
