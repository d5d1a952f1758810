"""Entries that attain extremes (argmax, argmin), and VJPs through them, on a device."""

from __future__ import annotations

from typing import Any

from . import _neighbours as neighbours
from ._graph import DeviceGraph
from ._neighbours import Columns


class _Arguments:
    """Sizes and index arrays of a graph as attributes, as kernels name them."""

    def __init__(self, graph: DeviceGraph) -> None:
        self.graph, self.runtime = graph, graph._platform.runtime

    def __getattr__(self, name: str) -> Any:
        graph = self.graph
        return getattr(graph, name) if name.startswith("num_") else graph._index(name)


def attained(graph: DeviceGraph, x: Any, edge: Any, weight: Any, most: bool) -> Any:
    """Return the entry that attains each extreme of the messages, the first of equals.

    Entries are numbered in CSC order, -1 for rows without entries. Messages are as in `aggregate`.
    """
    a = _Arguments(graph)
    rt = a.runtime
    tables = [(x, {"nodes": a.in_nodes}), (edge, {"edges": a.in_edges})]
    parts = [(table, of) for table, of in tables if table is not None and table.shape[1]]
    lead, first = sum(table.shape[1] for table, _ in parts), 0
    weight = None if weight is None else rt.xp.ascontiguousarray(weight)
    winners = rt.empty((a.num_dst, lead), "int64")
    for table, of in parts:
        rows = neighbours.into(a, **of, weighted=a.in_edges, weight=weight)
        width = table.shape[1]
        values, place = rt.xp.ascontiguousarray(table), Columns(None, lead, first)
        neighbours.win(rt, rows, most, values, width, place, False, winners)
        first += width
    return winners - 1


def pull(graph: DeviceGraph, entries: Any, gy: Any, columns: slice, of_edges: bool) -> Any:
    """Return the gradient by edge or source features that form some columns of the messages.

    Elements of `entries` that are not entries of their row do not contribute.
    """
    a = _Arguments(graph)
    rt, width = a.runtime, columns.stop - columns.start
    found = rt.empty((a.num_edges if of_edges else a.num_src, width), gy.dtype)
    if of_edges:
        nodes, _ = neighbours.along(a, neighbours.owners(a))
        rows, places = neighbours.of_edges(a, nodes=nodes), a.id_entries
    else:
        rows, places = neighbours.out_of(a, nodes=a.out_nodes), a.out_entries
    lead, winners = gy.shape[1], rt.xp.ascontiguousarray(entries, "int64") + 1
    neighbours.add(
        rt, rows, Columns(rt.xp.ascontiguousarray(gy), lead, columns.start), width,
        Columns(found, width, 0), False, winners=winners,
        places=places, back=True, lead=lead,
    )  # fmt: skip
    return found
