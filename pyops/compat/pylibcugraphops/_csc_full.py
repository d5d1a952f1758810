"""Graphs whose sources and destinations are the same nodes, with types of edges or without."""

from __future__ import annotations

import numpy as np

from ..._indices import Indices, check_bounds, check_indices
from ._csc import BipartiteCsc, Integers, make_bipartite_csc
from ._queue import on_host


class Csc(BipartiteCsc):
    """A graph as `make_csc` makes it."""


class CscHg(Csc):
    """A graph with types of edges, as `make_csc_hg` makes it."""

    n_edge_types: int
    edge_types: Indices


def make_csc(offsets: Integers, indices: Integers, map_csc_to_coo: Integers | None = None) -> Csc:
    """A graph whose sources are its destinations; otherwise as `make_bipartite_csc`."""
    nodes = max(0, len(np.asarray(on_host(offsets))) - 1)
    return Csc(make_bipartite_csc(offsets, indices, nodes, map_csc_to_coo).graph)


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
    types = check_indices("make_csc_hg: edge_types", on_host(edge_types))
    if len(types) != graph.n_indices:
        raise ValueError(
            f"make_csc_hg: edge_types: expected length len(indices)={graph.n_indices}, "
            f"got {len(types)}"
        )
    check_bounds("make_csc_hg: edge_types", types, n_edge_types, "n_edge_types")
    graph.n_edge_types, graph.edge_types = n_edge_types, types
    return graph
