"""Maxima and minima by the entries that attain them, numbered in CSC order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...._call.indices import Indices, check_integers
from ....graph import Graph
from .._queue import AnyGraph, check_numbers, on_device
from ._reductions import AggOp

if TYPE_CHECKING:
    from ...._call.types import Array


def find_extremes(
    graph: AnyGraph,
    x: Array | None,
    edge: Array | None,
    weight: Array | None,
    best: Array,
    operation: object,
) -> Indices:
    """Return the entry that attains each extreme, the first of equals; -1 in empty rows."""
    if not isinstance(graph, Graph):
        from ....cuda._extremes import argextremes

        attaining: Indices = argextremes(graph, x, edge, weight, operation is AggOp.Max)
        return attaining
    parts = [] if x is None else [x[graph.src]]
    parts += [] if edge is None else [edge[graph.edge_ids]]
    messages = np.concatenate(parts, axis=1)
    if weight is not None:
        messages = weight[graph.edge_ids][:, None] * messages
    best = best[:, : messages.shape[1]]
    # Entries of this graph are in CSC order.
    hit = (messages == best[graph.dst]) | (np.isnan(messages) & np.isnan(best[graph.dst]))
    entries = np.where(hit, np.arange(len(hit))[:, None], len(hit))
    found = np.full(best.shape, -1)
    degrees = graph.in_degrees()
    full = np.flatnonzero(degrees)
    if len(full):
        starts = (np.cumsum(degrees) - degrees)[full]
        found[full] = np.minimum.reduceat(entries, starts, axis=0)
    return found


def read_extremes(
    caller: str, graph: AnyGraph, location: npt.ArrayLike | None, shape: tuple[int, ...]
) -> Indices:
    """Return the entries that attained the extremes, checked to belong to their destinations."""
    label = f"{caller}: output_extrema_location"
    if location is None:
        raise TypeError(f"{label}: expected what the forward call wrote, got None")
    if not isinstance(graph, Graph):
        return check_numbers(label, location, shape)
    entries = check_integers(label, location)
    if entries.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {entries.shape}")
    ends = np.cumsum(graph.in_degrees())[:, None]
    starts = ends - graph.in_degrees()[:, None]
    if not np.where(starts == ends, entries == -1, (entries >= starts) & (entries < ends)).all():
        raise ValueError(f"{label}: expected entries of each destination, got others")
    return entries


def check_unread(label: str, location: object) -> None:
    """Check unused locations given to a call: an integer array, or None."""
    array = isinstance(location, np.ndarray) or on_device(location)
    kind = getattr(location, "dtype", None) if array else type(location).__name__
    if location is not None and not (array and kind in (np.int32, np.int64)):
        raise TypeError(f"{label}: expected an array of int32 or int64, got {kind}")


def back_by_extremes(
    graph: AnyGraph, entries: Indices, gy: Array, columns: slice, of_edges: bool
) -> Array:
    """Scatter the gradient by a table of sources, or edges, to the entries of the extremes."""
    if not isinstance(graph, Graph):
        from ....cuda._extremes import vjp

        scattered: Array = vjp(graph, entries, gy, columns, of_edges)
        return scattered
    entries, gy = entries[:, columns], gy[:, columns]
    rows, count = (graph.edge_ids, graph.num_edges) if of_edges else (graph.src, graph.num_src)
    gradient = np.zeros((count, gy.shape[1]), gy.dtype)
    nodes, places = np.nonzero(entries >= 0)
    np.add.at(gradient, (rows[entries[nodes, places]], places), gy[nodes, places])
    return gradient
