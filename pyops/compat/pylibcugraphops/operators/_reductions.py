"""Shared parts of the aggregation calls: checks, weighted means."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from ....ops.aggregate import aggregate
from .._csc import BipartiteCsc
from .._queue import AnyGraph, check_array, graph_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...._call.types import Array


class AggOp(Enum):
    """Reduction of messages."""

    Sum = "sum"
    Mean = "mean"
    Max = "max"
    Min = "min"


EXTREMES = AggOp.Max, AggOp.Min


def check_call(caller: str, graph: object, kind: type[BipartiteCsc] = BipartiteCsc) -> AnyGraph:
    """Return the graph of a call, on the device of its arrays."""
    if not isinstance(graph, kind):
        makers = {
            "BipartiteCsc": "make_csc or make_bipartite_csc",
            "Hetero": "make_csc_hg or make_bipartite_csc_hg",
        }
        maker = makers.get(kind.__name__, "make_csc")
        raise TypeError(f"{caller}: graph: expected what {maker} makes, got {type(graph).__name__}")
    return graph_for(graph)


def check_operation(caller: str, operation: object) -> AggOp:
    if not isinstance(operation, AggOp):
        raise TypeError(f"{caller}: aggregation_operation: expected AggOp, got {operation!r}")
    return operation


def table(label: str, array: object, rows: int) -> Array:
    """Return an array of features if it has this number of rows."""
    checked = check_array(label, array)
    if checked.ndim != 2 or len(checked) != rows:
        raise ValueError(f"{label}: expected shape ({rows}, dim), got {checked.shape}")
    return checked


def check_alike(label: str, array: Array, first: str, like: Array) -> None:
    """Refuse an array whose precision differs from that of the first argument."""
    if array.dtype.char != like.dtype.char:
        raise TypeError(f"{label}: expected {like.dtype} like {first}, got {array.dtype}")


def tables(caller: str, given: Mapping[str, tuple[object, int]]) -> dict[str, Array]:
    """Return arrays of features by name, each checked for its rows, of one precision."""
    arrays = {name: table(f"{caller}: {name}", *each) for name, each in given.items()}
    first, like = next(iter(arrays.items()))
    for name, array in arrays.items():
        check_alike(f"{caller}: {name}", array, first, like)
    return arrays


def weight_sums(graph: AnyGraph, weight: Array) -> Array:
    """Return the sum of the weights into each destination, 1 where it is 0."""
    sums = aggregate(graph, None, weight[:, None])
    assert sums is not None
    return np.where(sums == 0, weight.dtype.type(1), sums)
