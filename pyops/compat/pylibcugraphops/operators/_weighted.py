"""Aggregations with edge weights: the agg_weighted and agg_concat_weighted calls.

As in that library, a mean is divided by the sum of the weights into each destination, which is
stored in ``node_degree`` if that is given. Backward calls recompute all intermediates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...._call.arrays import Array
from ...._call.indices import Indices
from ....graph import Graph
from ....ops.aggregate import aggregate
from .._csc import BipartiteCsc
from .._csc_full import Csc
from .._names import in_names_of_call
from .._queue import check_array, queued
from .._results import write
from ._extremes import check_unread, find_extremes
from ._reductions import EXTREMES, AggOp, check_alike, check_call, table, weight_sums

_NAMES = {"x": "input_embedding", "weight": "edge_weight", "gy": "grad_output"}


@queued
@in_names_of_call(_NAMES)
def agg_weighted_n2n_fwd(
    output_embedding: Array,
    input_embedding: Array,
    edge_weight: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    node_degree: Array | None = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the weighted features of the sources."""
    caller = "agg_weighted_n2n_fwd"
    g = check_call(caller, graph, BipartiteCsc, aggregation_operation)
    given = input_embedding, edge_weight, aggregation_operation
    y, others = _forward(caller, g, *given, output_extrema_location, node_degree)
    write(caller, output_embedding=(output_embedding, y), **others)


@queued
@in_names_of_call(_NAMES)
def agg_concat_weighted_n2n_fwd(
    output_embedding: Array,
    input_embedding: Array,
    edge_weight: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    node_degree: Array | None = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the weighted features of the sources, and append the destination's own."""
    caller = "agg_concat_weighted_n2n_fwd"
    g = check_call(caller, graph, Csc, aggregation_operation)
    given = input_embedding, edge_weight, aggregation_operation
    y, others = _forward(caller, g, *given, output_extrema_location, node_degree)
    y = np.concatenate([y, input_embedding], axis=1)
    write(caller, output_embedding=(output_embedding, y), **others)


@queued
@in_names_of_call(_NAMES)
def agg_weighted_n2n_bwd(
    grad_input: Array | None,
    grad_edge_weight: Array | None,
    grad_output: Array,
    edge_weight: Array,
    input_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_embedding: Array | None = None,
    output_extrema_location: Any = None,
    node_degree: Array | None = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_weighted_n2n_fwd` that are not None."""
    caller = "agg_weighted_n2n_bwd"
    g = check_call(caller, graph, BipartiteCsc, aggregation_operation)
    x = _inputs(caller, g, input_embedding, edge_weight)
    gy = _like(caller, x, (g.num_dst, x.shape[1]), grad_output=grad_output)
    _check_left(caller, g, x, x.shape[1], output_embedding, output_extrema_location, node_degree)
    gx, gw = _backward(g, x, edge_weight, aggregation_operation, gy)
    _write_back(caller, grad_input=(grad_input, gx), grad_edge_weight=(grad_edge_weight, gw))


@queued
@in_names_of_call(_NAMES)
def agg_concat_weighted_n2n_bwd(
    grad_input: Array | None,
    grad_edge_weight: Array | None,
    grad_output: Array,
    edge_weight: Array,
    input_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_embedding: Array | None = None,
    output_extrema_location: Any = None,
    node_degree: Array | None = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_concat_weighted_n2n_fwd` that are not None."""
    caller = "agg_concat_weighted_n2n_bwd"
    g = check_call(caller, graph, Csc, aggregation_operation)
    x = _inputs(caller, g, input_embedding, edge_weight)
    width = 2 * x.shape[1]
    gy = _like(caller, x, (g.num_dst, width), grad_output=grad_output)
    _check_left(caller, g, x, width, output_embedding, output_extrema_location, node_degree)
    messages, own = np.split(gy, 2, axis=1)
    gx, gw = _backward(g, x, edge_weight, aggregation_operation, messages)
    _write_back(caller, grad_input=(grad_input, gx + own), grad_edge_weight=(grad_edge_weight, gw))


def _inputs(caller: str, graph: Graph, x: Any, weight: Any) -> Array:
    """Return the features of the sources; check that there is a weight for each edge."""
    checked = table(f"{caller}: input_embedding", x, graph.num_src)
    _like(caller, checked, (graph.num_edges,), edge_weight=weight)
    return checked


def _like(caller: str, x: Array, shape: tuple[int, ...], **named: Any) -> Array:
    """Return an array of this shape, of the precision of the features."""
    ((name, array),) = named.items()
    checked = check_array(f"{caller}: {name}", array)
    check_alike(f"{caller}: {name}", checked, "input_embedding", x)
    if checked.shape != shape:
        raise ValueError(f"{caller}: {name}: expected shape {shape}, got {checked.shape}")
    return checked


def _check_left(
    caller: str, graph: Graph, x: Array, width: int, output: Any, location: Any, degree: Any
) -> None:
    """Check arrays from the forward call, which the backward call does not use."""
    check_unread(f"{caller}: output_extrema_location", location)
    shapes = {"output_embedding": (graph.num_dst, width), "node_degree": (graph.num_dst,)}
    for (name, shape), array in zip(shapes.items(), (output, degree), strict=True):
        if array is not None:
            _like(caller, x, shape, **{name: array})


def _forward(
    caller: str,
    graph: Graph,
    x: Array,
    weight: Array,
    operation: AggOp,
    location: Any,
    degree: Array | None,
) -> tuple[Array, dict[str, tuple[Any, Array | Indices]]]:
    """Return the aggregated features, and the call's other outputs."""
    _inputs(caller, graph, x, weight)
    mean = operation is AggOp.Mean
    y: Array = aggregate(graph, x, None, weight, reduce="sum" if mean else operation.value)
    if operation not in EXTREMES:
        check_unread(f"{caller}: output_extrema_location", location)
    if mean:
        sums = weight_sums(graph, weight)
        return y / sums, {} if degree is None else {"node_degree": (degree, sums[:, 0])}
    _check_left(caller, graph, x, x.shape[1], None, None, degree)
    if operation not in EXTREMES or location is None:
        return y, {}
    found = find_extremes(graph, x, None, weight, y, operation)
    return y, {"output_extrema_location": (location, found)}


def _backward(
    graph: Graph, x: Array, weight: Array, operation: AggOp, gy: Array
) -> tuple[Array, Array]:
    mean = operation is AggOp.Mean
    reduce = "sum" if mean else operation.value
    sums = weight_sums(graph, weight) if mean else None
    gy = gy if sums is None else gy / sums
    gx, _, gw, _ = aggregate.backward(graph, x, None, weight, None, gy, reduce=reduce)
    assert gx is not None
    assert gw is not None
    if sums is not None:
        y = aggregate(graph, x, None, weight) / sums
        by_sum = (gy * y).sum(axis=1, keepdims=True)
        back = aggregate.backward(graph, None, weight[:, None], None, None, by_sum)[1]
        assert back is not None
        gw = gw - back[:, 0]
    return gx, gw


def _write_back(caller: str, **gradients: tuple[Array | None, Array]) -> None:
    write(caller, **{name: pair for name, pair in gradients.items() if pair[0] is not None})
