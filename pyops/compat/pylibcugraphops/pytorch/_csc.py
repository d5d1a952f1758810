"""The graphs of pylibcugraphops.pytorch, of all of its versions.

They share `CSC` and its checks, so they are one module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...._call.arrays import check_size
from ...._call.indices import Indices, check_bounds, check_indices
from ....torch import Graph
from ....torch.nn._edges.edge_index import on_cpu
from .._names import names_of_call
from .._queue import check_flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...._call.types import Values

Found = TypeVar("Found")
_NAMES = {"num_src": "num_src_nodes", "edge_ids": "ef_indices"}


class CSC:
    """A graph in CSC form: the source nodes of each destination.

    Parameters
    ----------
    offsets : tensor of int32 or int64, shape (num_dst_nodes + 1,)
        The edges into destination i are those from offsets[i] to offsets[i + 1] - 1.
    indices : tensor of int32 or int64, shape (num_indices,)
        Source node of each edge.
    num_src_nodes : int
        Number of source nodes.
    ef_indices : tensor of int32 or int64, shape (num_indices,), optional
        Row of the edge features of each edge; if not given, edge k has row k.
    dst_max_in_degree : int, optional
        Accepted but unused; the graph determines it.
    is_bipartite : bool
        Whether sources and destinations are different nodes, with features given as a pair. If
        not, the destinations are the first of the sources.
    reverse_graph_bwd : bool
        Accepted but unused; gradients are always gathered along the reverse graph.
    """

    def __init__(
        self,
        offsets: Tensor,
        indices: Tensor,
        num_src_nodes: int,
        *,
        ef_indices: Tensor | None = None,
        dst_max_in_degree: int | None = -1,
        is_bipartite: bool = False,
        reverse_graph_bwd: bool = True,
    ) -> None:
        caller = type(self).__name__
        check_flag(f"{caller}: is_bipartite", is_bipartite)
        check_flag(f"{caller}: reverse_graph_bwd", reverse_graph_bwd)
        _check_degree(f"{caller}: dst_max_in_degree", dst_max_in_degree)
        self.is_bipartite = bool(is_bipartite)
        rows = None if ef_indices is None else self._indices("ef_indices", ef_indices)
        arrays = self._indices("offsets", offsets), self._indices("indices", indices)
        with names_of_call(caller, _NAMES):
            graph = Graph.from_csc(*arrays, num_src_nodes, rows)
        self._order: Tensor | None = None
        if rows is not None:
            order = np.argsort(rows, kind="stable")
            if np.array_equal(rows[order], np.arange(len(order))):
                # Every edge has its own row, so the entries can be put in the order of the rows.
                self._order = torch.from_numpy(order)
                src, dst = graph.src[order], graph.dst[order]
                graph = Graph(src, dst, graph.num_src, graph.num_dst)
        if not is_bipartite and graph.num_src < graph.num_dst:
            raise ValueError(
                f"{caller}: num_src_nodes: expected at least the {graph.num_dst} "
                f"destinations, which are sources without is_bipartite, got {graph.num_src}"
            )
        self.graph = graph
        self._reversed: Graph | None = None

    @property
    def reversed(self) -> Graph:
        """The graph with all edges reversed."""
        if self._reversed is None:
            graph = self.graph
            self._reversed = Graph(graph.dst, graph.src, graph.num_dst, graph.num_src)
        return self._reversed

    @property
    def is_shared(self) -> bool:
        """Whether edges share a row of features, or a row has no edge."""
        return self.graph._ids is not None

    @property
    def num_src_nodes(self) -> int:
        """Number of source nodes."""
        return self.graph.num_src

    @property
    def num_dst_nodes(self) -> int:
        """Number of destination nodes."""
        return self.graph.num_dst

    @property
    def num_indices(self) -> int:
        """Number of edges."""
        return self.graph.num_entries

    def _indices(self, name: str, indices: Tensor | npt.ArrayLike) -> Indices:
        """Return a copy of an index tensor on the CPU."""
        return _checked(f"{type(self).__name__}: {name}", indices)

    def add_reverse_graph(self) -> None:
        """Do nothing: the reverse graph is built on first use."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_src_nodes={self.num_src_nodes}, "
            f"num_dst_nodes={self.num_dst_nodes}, num_indices={self.num_indices})"
        )


class HeteroCSC(CSC):
    """A graph with edge types; otherwise as `CSC`.

    Parameters
    ----------
    edge_types : tensor of int32 or int64, shape (num_indices,)
        Type of each edge, in the order of `indices`.
    num_edge_types : int
        Number of types.
    """

    def __init__(
        self,
        offsets: Tensor,
        indices: Tensor,
        edge_types: Tensor,
        num_src_nodes: int,
        num_edge_types: int,
        *,
        ef_indices: Tensor | None = None,
        dst_max_in_degree: int | None = -1,
        is_bipartite: bool = False,
        reverse_graph_bwd: bool = True,
    ) -> None:
        super().__init__(
            offsets,
            indices,
            num_src_nodes,
            ef_indices=ef_indices,
            dst_max_in_degree=dst_max_in_degree,
            is_bipartite=is_bipartite,
            reverse_graph_bwd=reverse_graph_bwd,
        )
        label = f"{type(self).__name__}: edge_types"
        self.num_edge_types = check_size(
            f"{type(self).__name__}: num_edge_types", num_edge_types, 0
        )
        types = self._indices("edge_types", edge_types)
        if len(types) != self.num_indices:
            raise ValueError(
                f"{label}: expected length len(indices)={self.num_indices}, got {len(types)}"
            )
        check_bounds(label, types, self.num_edge_types, "num_edge_types")
        held = torch.from_numpy(types.astype("int64"))
        self.edge_types = held if self._order is None else held[self._order]
        self._derived: Values = {}

    @property
    def typed(self) -> Graph:
        """The graph with types as edge ids."""
        return self._once(
            "typed", lambda: self._entries(self.edge_types.numpy(), self.num_edge_types)
        )

    @property
    def entries(self) -> Graph:
        """The graph with its own edge id for each entry."""
        return self._once("entries", lambda: self._entries(None, self.num_indices))

    @property
    def pairs(self) -> Graph:
        """The graph into pairs of destination and edge type."""
        graph, count = self.graph, self.num_edge_types
        return self._once(
            "pairs", lambda: Graph(graph.src, self._into(), graph.num_src, graph.num_dst * count)
        )

    @property
    def shares(self) -> Tensor:
        """One over the number of entries of the same type and destination, for each entry."""

        def make() -> Tensor:
            into = self._into()
            return 1 / torch.bincount(into).double()[into]

        return self._once("shares", make)

    def _into(self) -> Tensor:
        dst = torch.from_numpy(self.graph.dst.astype("int64"))
        return dst * self.num_edge_types + self.edge_types

    def _entries(self, ids: Indices | None, rows: int) -> Graph:
        graph = Graph.__new__(Graph)
        sizes = self.graph.num_src, self.graph.num_dst, rows
        graph._fill(type(self).__name__, self.graph.src, self.graph.dst, ids, *sizes)
        return graph

    def _once(self, name: str, make: Callable[[], Found]) -> Found:
        if name not in self._derived:
            self._derived[name] = make()
        found: Found = self._derived[name]
        return found


class BipartiteCSC(CSC):
    """A bipartite `CSC`, as in versions up to 23.08."""

    def __init__(
        self,
        offsets: Tensor,
        indices: Tensor,
        num_src_nodes: int,
        ef_indices: Tensor | None = None,
        reverse_graph_bwd: bool = True,
    ) -> None:
        super().__init__(
            offsets,
            indices,
            num_src_nodes,
            ef_indices=ef_indices,
            is_bipartite=True,
            reverse_graph_bwd=reverse_graph_bwd,
        )


class StaticCSC(CSC):
    """A `CSC` of one set of nodes, as in versions up to 23.08.

    Sources that are not destinations are allowed where only edges are aggregated.
    """

    def __init__(self, offsets: Tensor, indices: Tensor, ef_indices: Tensor | None = None) -> None:
        count = _nodes(type(self).__name__, offsets, indices)
        super().__init__(offsets, indices, count, ef_indices=ef_indices)


class SampledCSC(CSC):
    """A `CSC` whose destinations are the first of its sources, as in versions up to 23.08."""

    def __init__(
        self, offsets: Tensor, indices: Tensor, max_num_neighbors: int, num_src_nodes: int
    ) -> None:
        _check_degree(f"{type(self).__name__}: max_num_neighbors", max_num_neighbors)
        super().__init__(offsets, indices, num_src_nodes)


class StaticHeteroCSC(HeteroCSC):
    """A `HeteroCSC` of one set of nodes, as in versions up to 23.08."""

    def __init__(
        self, offsets: Tensor, indices: Tensor, edge_types: Tensor, num_edge_types: int
    ) -> None:
        count = _nodes(type(self).__name__, offsets, indices)
        super().__init__(offsets, indices, edge_types, count, num_edge_types)


class SampledHeteroCSC(HeteroCSC):
    """A `HeteroCSC` whose destinations are the first of its sources."""

    def __init__(
        self,
        offsets: Tensor,
        indices: Tensor,
        edge_types: Tensor,
        max_num_neighbors: int,
        num_src_nodes: int,
        num_edge_types: int,
    ) -> None:
        _check_degree(f"{type(self).__name__}: max_num_neighbors", max_num_neighbors)
        super().__init__(offsets, indices, edge_types, num_src_nodes, num_edge_types)


def _nodes(caller: str, offsets: Tensor, indices: Tensor) -> int:
    """Return the number of nodes that offsets and indices refer to."""
    starts, sources = (
        _checked(f"{caller}: offsets", offsets),
        _checked(f"{caller}: indices", indices),
    )
    return max(0, len(starts) - 1, 1 + int(sources.max(initial=-1)))


def _checked(label: str, indices: Tensor | npt.ArrayLike) -> Indices:
    return check_indices(label, on_cpu(label, indices) if isinstance(indices, Tensor) else indices)


def _check_degree(label: str, degree: object) -> None:
    """Refuse an invalid largest degree; -1 or None if it is not known."""
    if degree is not None:
        check_size(label, degree, -1)
