"""Graphs whose sources and destinations are the same nodes, and graphs with edge types."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..._call.arrays import check_size
from ..._call.indices import Indices, check_bounds, check_indices, frozen
from ._csc import (
    BipartiteCsc,
    Integers,
    bipartite_csc_int32,
    bipartite_csc_int64,
    built,
)

if TYPE_CHECKING:
    from ...graph import Graph


class Csc(BipartiteCsc):
    """A graph made by `make_csc`."""


class Hetero(BipartiteCsc):
    """A graph with edge types."""

    n_edge_types: int
    edge_types: Indices


class CscHg(Csc, Hetero):
    """A graph with edge types, made by `make_csc_hg`."""


class bipartite_csc_hg_int32(bipartite_csc_int32, Hetero):  # noqa: N801
    """A bipartite graph of int32 arrays with edge types."""


class bipartite_csc_hg_int64(bipartite_csc_int64, Hetero):  # noqa: N801
    """A bipartite graph of int64 arrays with edge types."""


Typed = TypeVar("Typed", bound=Hetero)


def make_csc(offsets: Integers, indices: Integers, map_csc_to_coo: Integers | None = None) -> Csc:
    """Make a graph whose sources are its destinations; otherwise as `make_bipartite_csc`."""
    return Csc(_square("make_csc", offsets, indices, map_csc_to_coo))


def make_csc_hg(
    offsets: Integers,
    indices: Integers,
    n_node_types: int,
    n_edge_types: int,
    node_types: Integers | None,
    edge_types: Integers,
    map_csc_to_coo: Integers | None = None,
) -> CscHg:
    """Make a graph with a type for each entry; node types are checked but unused."""
    graph = CscHg(_square("make_csc_hg", offsets, indices, map_csc_to_coo))
    _check_nodes("make_csc_hg", n_node_types, node_types, [graph.n_dst_nodes])
    return _with_types("make_csc_hg", graph, n_edge_types, edge_types)


def make_bipartite_csc_hg(
    offsets: Integers,
    indices: Integers,
    n_node_types: int,
    n_edge_types: int,
    node_types: Integers | None,
    edge_types: Integers,
    map_csc_to_coo: Integers | None = None,
    *,
    n_src_nodes: int | None = None,
) -> bipartite_csc_hg_int32 | bipartite_csc_hg_int64:
    """Make a bipartite graph with a type for each entry; otherwise as `make_bipartite_csc`.

    Parameters
    ----------
    offsets, indices, map_csc_to_coo
        As for `make_bipartite_csc`.
    n_node_types, n_edge_types : int
        Number of node types, and of edge types.
    node_types : array_like of int32 or int64, optional
        Type of each source, of each destination, or of the sources followed by the
        destinations; checked but unused.
    edge_types : array_like of int32 or int64, shape (n_indices,)
        Type of each entry, in the order of `indices`.
    n_src_nodes : int, optional
        Number of source nodes; by default one more than the largest of `indices`.
    """
    caller = "make_bipartite_csc_hg"
    sources = check_indices(f"{caller}: indices", indices)
    count = max(0, int(sources.max(initial=-1)) + 1) if n_src_nodes is None else n_src_nodes
    plain = built(caller, offsets, sources, count, map_csc_to_coo)
    small = isinstance(plain, bipartite_csc_int32)
    graph = (bipartite_csc_hg_int32 if small else bipartite_csc_hg_int64)(plain.graph)
    nodes = plain.n_src_nodes, plain.n_dst_nodes
    _check_nodes(caller, n_node_types, node_types, [*nodes, sum(nodes)])
    return _with_types(caller, graph, n_edge_types, edge_types)


def _square(caller: str, offsets: Integers, indices: Integers, ids: Integers | None) -> Graph:
    """Return the graph with as many sources as destinations."""
    checked = check_indices(f"{caller}: offsets", offsets)
    return built(caller, checked, indices, max(0, len(checked) - 1), ids).graph


def _check_nodes(caller: str, count: int, node_types: Integers | None, lengths: list[int]) -> None:
    check_size(f"{caller}: n_node_types", count)
    if node_types is None:
        return
    types = check_indices(f"{caller}: node_types", node_types)
    if len(types) not in lengths:
        wanted = " or ".join(map(str, dict.fromkeys(lengths)))
        raise ValueError(f"{caller}: node_types: expected length {wanted}, got {len(types)}")
    check_bounds(f"{caller}: node_types", types, count, "n_node_types")


def _with_types(caller: str, graph: Typed, count: int, edge_types: Integers) -> Typed:
    """Add a type for each entry to the graph and return it."""
    check_size(f"{caller}: n_edge_types", count)
    types = check_indices(f"{caller}: edge_types", edge_types)
    if len(types) != graph.n_indices:
        raise ValueError(
            f"{caller}: edge_types: expected length len(indices)={graph.n_indices}, "
            f"got {len(types)}"
        )
    check_bounds(f"{caller}: edge_types", types, count, "n_edge_types")
    graph.n_edge_types, graph.edge_types = int(count), frozen(types, types.dtype.type)
    return graph
