"""Graphs that programs derive from others, on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._call.indices import check_bounds
from ..graph import Graph, _restore

if TYPE_CHECKING:
    from .._call.indices import Indices
    from ._calls import Options


def as_graph(given: object) -> Graph:
    """Return a value of kind "graph"."""
    assert isinstance(given, Graph)
    return given


def as_index(given: object) -> Indices:
    """Return a value of kind "index", which was checked as an input."""
    assert isinstance(given, np.ndarray)
    return given


def rearranged(name: str, graph: Graph, index: object, options: Options) -> Graph:
    """Return a graph derived from another, with which it is cached unless there is an index."""
    if index is not None:
        return by_relation(graph, as_index(index), options["relations"])
    key = "models", name, str(options.get("mode", ""))
    found: Graph | None = graph._copies.get(key)
    if found is None:
        if name == "add_self_loops":
            found = add_self_loops(graph, options["mode"] == "complete")
        else:
            found = {"remove_self_loops": remove_self_loops, "reverse": Graph.reverse,
                     "per_edge": per_edge}[name](graph)  # fmt: skip
        graph._copies[key] = found
    return found


def add_self_loops(graph: Graph, complete: bool) -> Graph:
    """Return the graph with one self loop of each node, in the order of the nodes, at the end.

    New loops have the edge ids that follow those of the graph, as rows of edge arrays. If
    `complete` is set, a node keeps the last of its loops, otherwise none.
    """
    src, dst, ids, rows = graph.src, graph.dst, graph.edge_ids, graph.num_edges
    count = min(graph.num_src, graph.num_dst)
    nodes = np.arange(count, dtype=src.dtype)
    kept = src != dst
    loops = rows + np.arange(count)
    if complete:
        held = np.flatnonzero(~kept)
        loops[src[held]] = ids[held]
    src, dst = (np.concatenate([end[kept], nodes]) for end in (src, dst))
    all_ids = None if kept.all() and graph._ids is None else np.concatenate([ids[kept], loops])
    return _restore(src, dst, all_ids, graph.num_src, graph.num_dst, rows + count)


def remove_self_loops(graph: Graph) -> Graph:
    """Return the graph without self loops; edge ids are unchanged."""
    kept = graph.src != graph.dst
    if kept.all():
        return graph
    sizes = graph.num_src, graph.num_dst, graph.num_edges
    return _restore(graph.src[kept], graph.dst[kept], graph.edge_ids[kept], *sizes)


def per_edge(graph: Graph) -> Graph:
    """Return the graph in which each entry has its own destination."""
    count = graph.num_entries
    return _restore(graph.src, np.arange(count), None, graph.num_src, count, count)


def by_relation(graph: Graph, index: Indices, relations: object) -> Graph:
    """Return the graph with a destination for each node and relation, those of a node in turn."""
    assert isinstance(relations, int)
    if len(index) != graph.num_entries:
        raise ValueError(
            f"index: expected {graph.num_entries} relations, one for each edge, got {len(index)}"
        )
    check_bounds("index", index, relations, "relations")
    places = graph.dst.astype(np.int64) * relations + index
    sizes = graph.num_src, graph.num_dst * relations, graph.num_edges
    return _restore(graph.src, places, graph._ids, *sizes)
