"""Graphs whose sources and destinations are the same nodes, with types of edges or without."""

from __future__ import annotations

from ..._indices import Indices, check_bounds, check_indices, frozen
from ._csc import BipartiteCsc, Integers, make_bipartite_csc


class Csc(BipartiteCsc):
    """A graph as `make_csc` makes it."""


class CscHg(Csc):
    """A graph with types of edges, as `make_csc_hg` makes it."""

    n_edge_types: int
    edge_types: Indices


def make_csc(offsets: Integers, indices: Integers, map_csc_to_coo: Integers | None = None) -> Csc:
    """A graph whose sources are its destinations; otherwise as `make_bipartite_csc`."""
    checked = check_indices("make_csc: offsets", offsets)
    nodes = max(0, len(checked) - 1)
    return Csc(make_bipartite_csc(checked, indices, nodes, map_csc_to_coo).graph)


def make_csc_hg(
    offsets: Integers,
    indices: Integers,
    n_node_types: int,
    n_edge_types: int,
    node_types: Integers | None,
    edge_types: Integers,
    map_csc_to_coo: Integers | None = None,
) -> CscHg:
    """A graph with a type for each entry; types of nodes are accepted and mean nothing here."""
    graph = CscHg(make_csc(offsets, indices, map_csc_to_coo).graph)
    types = check_indices("make_csc_hg: edge_types", edge_types)
    if len(types) != graph.n_indices:
        raise ValueError(
            f"make_csc_hg: edge_types: expected length len(indices)={graph.n_indices}, "
            f"got {len(types)}"
        )
    check_bounds("make_csc_hg: edge_types", types, n_edge_types, "n_edge_types")
    graph.n_edge_types, graph.edge_types = n_edge_types, frozen(types, types.dtype.type)
    return graph
