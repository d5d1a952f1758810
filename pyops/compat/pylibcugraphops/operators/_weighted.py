"""Aggregations with edge weights: the agg_weighted and agg_concat_weighted calls.

As in that library, a mean is divided by the sum of the weights into each destination, which is
stored in ``node_degree`` if that is given. Backward calls recompute all intermediates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....ops.aggregate import aggregate
from .._csc import BipartiteCsc
from .._csc_full import Csc
from .._queue import AnyGraph, check_array, queue, signature_of
from .._results import write
from ._extremes import check_unread, find_extremes
from ._reductions import (
    EXTREMES,
    AggOp,
    check_alike,
    check_call,
    check_operation,
    table,
    weight_sums,
)

if TYPE_CHECKING:
    from ...._call.indices import Indices
    from ...._call.types import Array, Values

_NAMES = {"x": "input_embedding", "weight": "edge_weight", "gy": "grad_output"}


LAST = {"output_extrema_location": None, "node_degree": None, "stream_id": 0}
"""Last parameters of the calls, with their defaults."""


class WeightedAggregation:
    """A pair of calls; `concat` appends the destination's own features."""

    def __init__(self, name: str, summary: str, concat: bool) -> None:
        self.name, self.concat, self.kind = name, concat, Csc if concat else BipartiteCsc
        sums = {"aggregation_operation": AggOp.Sum}
        gradients = "grad_input", "grad_edge_weight"
        forward = signature_of(
            ("output_embedding", "input_embedding", "edge_weight", "graph"), {**sums, **LAST}
        )
        backward = signature_of(
            (*gradients, "grad_output", "edge_weight", "input_embedding", "graph"),
            {**sums, "output_embedding": None, **LAST},
            gradients,
        )
        doc = f"Compute the gradients of `{name}_fwd` that are not None."
        self.calls = (
            queue(f"{name}_fwd", summary, __name__, forward, self.forward, _NAMES),
            queue(f"{name}_bwd", doc, __name__, backward, self.backward, _NAMES),
        )

    def forward(self, values: Values) -> None:
        caller = f"{self.name}_fwd"
        g = check_call(caller, values["graph"], self.kind)
        operation = check_operation(caller, values["aggregation_operation"])
        location, degree = values["output_extrema_location"], values["node_degree"]
        x, weight = _inputs(caller, g, values)
        mean = operation is AggOp.Mean
        outputs: dict[str, tuple[object, Array | Indices]] = {}
        y = aggregate(g, x, None, weight, reduce="sum" if mean else operation.value)
        if operation not in EXTREMES:
            check_unread(f"{caller}: output_extrema_location", location)
        elif location is not None:
            found = find_extremes(g, x, None, weight, y, operation)
            outputs["output_extrema_location"] = location, found
        if mean:
            sums = weight_sums(g, weight)
            y = y / sums
            if degree is not None:
                outputs["node_degree"] = degree, sums[:, 0]
        elif degree is not None:
            _like(caller, x, (g.num_dst,), node_degree=degree)
        y = np.concatenate([y, x], axis=1) if self.concat else y
        write(caller, output_embedding=(values["output_embedding"], y), **outputs)

    def backward(self, values: Values) -> None:
        caller = f"{self.name}_bwd"
        g = check_call(caller, values["graph"], self.kind)
        operation = check_operation(caller, values["aggregation_operation"])
        x, weight = _inputs(caller, g, values)
        shape = g.num_dst, (1 + self.concat) * x.shape[1]
        gy = _like(caller, x, shape, grad_output=values["grad_output"])
        check_unread(f"{caller}: output_extrema_location", values["output_extrema_location"])
        for name, of_forward in {"output_embedding": shape, "node_degree": shape[:1]}.items():
            if values[name] is not None:
                _like(caller, x, of_forward, **{name: values[name]})
        messages = gy[:, : x.shape[1]] if self.concat else gy
        gx, gw = _gradients(g, x, weight, operation, messages)
        gx = gx + gy[:, x.shape[1] :] if self.concat else gx
        results = ("grad_input", gx), ("grad_edge_weight", gw)
        wanted = {n: (values[n], a) for n, a in results if values[n] is not None}
        write(caller, **wanted)


def _inputs(caller: str, graph: AnyGraph, values: Values) -> tuple[Array, Array]:
    """Return the features of the sources, and the weights of the edges."""
    x = table(f"{caller}: input_embedding", values["input_embedding"], graph.num_src)
    return x, _like(caller, x, (graph.num_edges,), edge_weight=values["edge_weight"])


def _like(caller: str, x: Array, shape: tuple[int, ...], **named: object) -> Array:
    """Return an array of this shape, of the precision of the features."""
    ((name, array),) = named.items()
    checked = check_array(f"{caller}: {name}", array)
    check_alike(f"{caller}: {name}", checked, "input_embedding", x)
    if checked.shape != shape:
        raise ValueError(f"{caller}: {name}: expected shape {shape}, got {checked.shape}")
    return checked


def _gradients(
    graph: AnyGraph, x: Array, weight: Array, operation: AggOp, gy: Array
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


agg_weighted_n2n_fwd, agg_weighted_n2n_bwd = WeightedAggregation(
    "agg_weighted_n2n", "Aggregate the weighted features of the sources.", False
).calls
agg_concat_weighted_n2n_fwd, agg_concat_weighted_n2n_bwd = WeightedAggregation(
    "agg_concat_weighted_n2n",
    "Aggregate the weighted features of the sources, and append the destination's own.",
    True,
).calls
