"""Entries that attain extremes (argmax, argmin), and VJPs through them, on a device.

Arguments and results are arrays of the caller, which types them as those of NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _neighbours as neighbours
from ._neighbours import Columns

if TYPE_CHECKING:
    from ._array import DeviceArray
    from ._graph import DeviceGraph


def argextremes(
    graph: DeviceGraph, x: object | None, edge: object | None, weight: object | None, most: bool
) -> Any:
    """Return the entry that attains each extreme of the messages, the first of equals.

    Entries are numbered in CSC order, -1 for rows without entries. Messages are as in `aggregate`.
    """
    rt, edges = graph._platform.runtime, graph._index("in_edges")
    factors = None if weight is None else _contiguous(graph, weight)
    tables = (x, {"nodes": graph._index("in_nodes")}), (edge, {"edges": edges})
    parts = [(_contiguous(graph, table), by) for table, by in tables if table is not None]
    stride, first = sum(table.shape[1] for table, _ in parts), 0
    found = rt.empty((graph.num_dst, stride), "int64")
    for table, by in parts:
        if width := table.shape[1]:
            rows = neighbours.incoming(graph, **by, weighted=edges, weight=factors)
            out = Columns(None, stride, first)
            neighbours.extremes(rt, rows, most, table, width, out, False, found)
            first += width
    return found - 1


def vjp(graph: DeviceGraph, entries: object, gy: object, columns: slice, of_edges: bool) -> Any:
    """Return the gradient by edge or source features that form some columns of the messages.

    Elements of `entries` that are not entries of their row do not contribute.
    """
    rt, gy, width = graph._platform.runtime, _contiguous(graph, gy), columns.stop - columns.start
    gradient = rt.empty((graph.num_edges if of_edges else graph.num_src, width), gy.dtype)
    if of_edges:
        nodes, _ = neighbours.ends_by_edge(graph)
        rows, positions = neighbours.of_edges(graph, nodes=nodes), graph._index("id_entries")
    else:
        rows = neighbours.outgoing(graph, nodes=graph._index("out_nodes"))
        positions = graph._index("out_entries")
    stride = gy.shape[1]
    neighbours.add(
        rt, rows, Columns(gy, stride, columns.start), width, Columns(gradient, width), False,
        argextremes=_contiguous(graph, entries, "int64") + 1, positions=positions, backward=True,
        stride=stride,
    )  # fmt: skip
    return gradient


def _contiguous(graph: DeviceGraph, array: object, dtype: str | None = None) -> DeviceArray:
    platform = graph._platform
    return platform.runtime.xp.ascontiguousarray(platform.adopt(array)[0], dtype)
