"""What the aggregating calls share: checks, maxima by their locations, weighted means."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from ...._arrays import Array
from ...._indices import Indices, check_indices
from ....graph import Graph
from ....ops.aggregate import aggregate
from .._csc import BipartiteCsc
from .._queue import check_array, graph_for, refuse_on_device


class AggOp(Enum):
    """How messages are put together."""

    Sum = "sum"
    Mean = "mean"
    Max = "max"
    Min = "min"


EXTREMES = AggOp.Max, AggOp.Min


def check_call(caller: str, graph: object, kind: type, operation: object = AggOp.Sum) -> Graph:
    if not isinstance(graph, kind):
        made = {"BipartiteCsc": "make_csc or make_bipartite_csc", "CscHg": "make_csc_hg"}
        maker = made.get(kind.__name__, "make_csc")
        raise TypeError(f"{caller}: graph: expected what {maker} makes, got {type(graph).__name__}")
    if not isinstance(operation, AggOp):
        raise TypeError(f"{caller}: aggregation_operation: expected AggOp, got {operation!r}")
    assert isinstance(graph, BipartiteCsc)
    found: Graph = graph_for(graph)
    return found


def table(label: str, array: object, rows: int) -> Array:
    """An array of features with so many rows."""
    checked = check_array(label, array)
    if checked.ndim != 2 or len(checked) != rows:
        raise ValueError(f"{label}: expected shape ({rows}, dim), got {checked.shape}")
    return checked


def tables(caller: str, given: Mapping[str, tuple[object, int]]) -> dict[str, Array]:
    """Arrays of features by name, each with so many rows, of one precision."""
    arrays = {name: table(f"{caller}: {name}", *each) for name, each in given.items()}
    first, like = next(iter(arrays.items()))
    for name, array in arrays.items():
        if array.dtype != like.dtype:
            raise TypeError(
                f"{caller}: {name}: expected {like.dtype} like {first}, got {array.dtype}"
            )
    return arrays


def find_extremes(graph: Graph, messages: Array, best: Array) -> Indices:
    """The entry that attains each extreme, the first of equals; -1 in empty rows."""
    # Entries stand by destination here.
    hit = (messages == best[graph.dst]) | (np.isnan(messages) & np.isnan(best[graph.dst]))
    entries = np.where(hit, np.arange(len(hit))[:, None], len(hit))
    found = np.full(best.shape, -1)
    degrees = graph.in_degrees()
    full = np.flatnonzero(degrees)
    if len(full):
        starts = (np.cumsum(degrees) - degrees)[full]
        found[full] = np.minimum.reduceat(entries, starts, axis=0)
    return found


def read_extremes(caller: str, graph: Graph, location: Any, shape: tuple[int, ...]) -> Indices:
    """The entries that attained the extremes, each of its own destination."""
    label = f"{caller}: output_extrema_location"
    if location is None:
        raise TypeError(f"{label}: expected what the forward call wrote, got None")
    refuse_on_device(label, location)
    entries = check_indices(label, np.ravel(location)).reshape(np.shape(location))
    if entries.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {entries.shape}")
    ends = np.cumsum(graph.in_degrees())[:, None]
    starts = ends - graph.in_degrees()[:, None]
    if not np.where(starts == ends, entries == -1, (entries >= starts) & (entries < ends)).all():
        raise ValueError(f"{label}: expected entries of each destination, got others")
    return entries


def back_by_extremes(entries: Indices, rows: Indices, count: int, gy: Array) -> Array:
    """The gradient of a table: what belongs to the rows of the entries that attained them."""
    gradient = np.zeros((count, gy.shape[1]), gy.dtype)
    nodes, columns = np.nonzero(entries >= 0)
    np.add.at(gradient, (rows[entries[nodes, columns]], columns), gy[nodes, columns])
    return gradient


def weight_sums(graph: Graph, weight: Array) -> Array:
    """The sum of the weights into each destination, 1 where that is 0."""
    sums = aggregate(graph, None, weight[:, None])
    assert sums is not None
    return np.where(sums == 0, weight.dtype.type(1), sums)
