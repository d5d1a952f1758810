"""Aggregations: the agg_* calls, with outputs of the caller.

Messages are the features of sources (n2n), of edges (e2n), or both side by side; ``concat`` appends
the destination's own features. For a maximum or minimum, ``output_extrema_location`` receives the
number of the entry that attains it, the first of equals, -1 in empty rows. Weighted means are
divided by the sum of the weights, which is stored in ``node_degree`` if that is given.
``stream_id`` applies to arrays on a device, see `_queue`. There, backward calls do not check the
locations given to them: an entry of another destination contributes nothing.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from ...._call.arrays import Array, check_size
from ....ops.aggregate import aggregate
from .._csc import BipartiteCsc
from .._csc_full import Csc
from .._queue import queued
from .._results import write
from ._extremes import back_by_extremes, check_unread, find_extremes, read_extremes
from ._reductions import EXTREMES, AggOp, check_call, tables


class Aggregation:
    """A pair of calls: which messages there are, and whether the own features are appended."""

    def __init__(self, name: str, nodes: str = "", edges: str = "", own: str = "") -> None:
        self.name, self.nodes, self.edges, self.own = name, nodes, edges, own

    def forward(
        self,
        output: Array,
        given: dict[str, Any],
        graph: Any,
        operation: Any,
        location: Any,
        **dims: int,
    ) -> None:
        caller = f"{self.name}_fwd"
        g = check_call(caller, graph, Csc if self.own else BipartiteCsc, operation)
        sizes = {self.nodes: g.num_src, self.edges: g.num_edges, self.own: g.num_dst}
        arrays = tables(caller, {f"{n}_embedding": (a, sizes[n]) for n, a in given.items()})
        _check_widths(caller, dims, {n: arrays[f"{n}_embedding"] for n in given})
        x, edge, own = (arrays.get(f"{n}_embedding") for n in (self.nodes, self.edges, self.own))
        y = aggregate(g, x, edge, None, own, reduce=operation.value)
        outputs = {"output_embedding": (output, y)}
        if operation in EXTREMES and location is not None:
            found = find_extremes(g, x, edge, None, y, operation)
            outputs["output_extrema_location"] = location, found
        elif operation not in EXTREMES:
            check_unread(f"{caller}: output_extrema_location", location)
        write(caller, **outputs)

    def backward(
        self,
        grads: dict[str, Any],
        gy: Any,
        graph: Any,
        operation: Any,
        location: Any,
        **dims: int,
    ) -> None:
        caller = f"{self.name}_bwd"
        g = check_call(caller, graph, Csc if self.own else BipartiteCsc, operation)
        sizes = {self.nodes: g.num_src, self.edges: g.num_edges, self.own: g.num_dst}
        named = {f"grad_{n}": (a, sizes[n]) for n, a in grads.items()}
        outs = tables(caller, {"grad_output": (gy, g.num_dst), **named})
        gy = outs["grad_output"]
        _check_widths(caller, dims, {n: outs[f"grad_{n}"] for n in grads})
        widths = {
            n: outs[f"grad_{n}"].shape[1] if n else 0 for n in (self.nodes, self.edges, self.own)
        }
        before = [0, *accumulate(widths[n] for n in (self.nodes, self.edges, self.own))]
        if gy.shape[1] != before[-1]:
            raise ValueError(
                f"{caller}: grad_output: expected shape ({g.num_dst}, {before[-1]}), got {gy.shape}"
            )
        messages = gy[:, : before[2]]
        results: dict[str, Array] = {}
        if operation in EXTREMES:
            entries = read_extremes(caller, g, location, messages.shape)
            for n, of_edges in ((self.nodes, False), (self.edges, True)):
                if n:
                    columns = slice(*before[of_edges : of_edges + 2])
                    results[n] = back_by_extremes(g, entries, messages, columns, of_edges)
        else:
            check_unread(f"{caller}: output_extrema_location", location)
            zeros = [
                np.zeros_like(gy, shape=(sizes[n], widths[n])) if n else None
                for n in (self.nodes, self.edges)
            ]
            back = aggregate.backward(g, *zeros, None, None, messages, reduce=operation.value)
            pairs = zip((self.nodes, self.edges), back, strict=False)
            results = {n: a for n, a in pairs if n and a is not None}
        if self.own:
            last = gy[:, before[2] :]
            results[self.own] = results.get(self.own, np.zeros_like(last)) + last
        write(caller, **{f"grad_{n}": (grads[n], result) for n, result in results.items()})


def _check_widths(caller: str, dims: dict[str, int], arrays: dict[str, Array]) -> None:
    """Check the widths that a call names against those of its arrays."""
    for name, dim in dims.items():
        width = arrays[name.replace("dim", "input")].shape[1]
        if check_size(f"{caller}: {name}", dim, 0) != width:
            raise ValueError(f"{caller}: {name}: expected the width {width}, got {dim}")


_SIMPLE_N2N = Aggregation("agg_simple_n2n", nodes="input")
_SIMPLE_E2N = Aggregation("agg_simple_e2n", edges="input")
_SIMPLE_BOTH = Aggregation("agg_simple_n2n_e2n", nodes="input_node", edges="input_edge")
_CONCAT_N2N = Aggregation("agg_concat_n2n", nodes="input", own="input")
_CONCAT_E2N = Aggregation("agg_concat_e2n", edges="input_edge", own="input_node")
_CONCAT_BOTH = Aggregation(
    "agg_concat_n2n_e2n", nodes="input_node", edges="input_edge", own="input_node"
)


@queued
def agg_simple_n2n_fwd(
    output_embedding: Array,
    input_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the features of the sources."""
    given = {"input": input_embedding}
    _SIMPLE_N2N.forward(
        output_embedding, given, graph, aggregation_operation, output_extrema_location
    )


@queued
def agg_simple_n2n_bwd(
    grad_input: Array,
    grad_output: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_simple_n2n_fwd`."""
    grads = {"input": grad_input}
    _SIMPLE_N2N.backward(grads, grad_output, graph, aggregation_operation, output_extrema_location)


@queued
def agg_simple_e2n_fwd(
    output_embedding: Array,
    input_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the features of the edges."""
    given = {"input": input_embedding}
    _SIMPLE_E2N.forward(
        output_embedding, given, graph, aggregation_operation, output_extrema_location
    )


@queued
def agg_simple_e2n_bwd(
    grad_input: Array,
    grad_output: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_simple_e2n_fwd`."""
    grads = {"input": grad_input}
    _SIMPLE_E2N.backward(grads, grad_output, graph, aggregation_operation, output_extrema_location)


@queued
def agg_simple_n2n_e2n_fwd(
    output_embedding: Array,
    input_node_embedding: Array,
    input_edge_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the features of the sources and of the edges."""
    given = {"input_node": input_node_embedding, "input_edge": input_edge_embedding}
    _SIMPLE_BOTH.forward(
        output_embedding, given, graph, aggregation_operation, output_extrema_location
    )


@queued
def agg_simple_n2n_e2n_bwd(
    grad_input_node: Array,
    grad_input_edge: Array,
    grad_output: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_simple_n2n_e2n_fwd`."""
    grads = {"input_node": grad_input_node, "input_edge": grad_input_edge}
    _SIMPLE_BOTH.backward(grads, grad_output, graph, aggregation_operation, output_extrema_location)


@queued
def agg_concat_n2n_fwd(
    output_embedding: Array,
    input_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the features of the sources, and append the destination's own."""
    given = {"input": input_embedding}
    _CONCAT_N2N.forward(
        output_embedding, given, graph, aggregation_operation, output_extrema_location
    )


@queued
def agg_concat_n2n_bwd(
    grad_input: Array,
    grad_output: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_concat_n2n_fwd`."""
    grads = {"input": grad_input}
    _CONCAT_N2N.backward(grads, grad_output, graph, aggregation_operation, output_extrema_location)


@queued
def agg_concat_e2n_fwd(
    output_embedding: Array,
    input_edge_embedding: Array,
    input_node_embedding: Array,
    graph: Any,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the features of the edges, and append the destination's own."""
    given = {"input_edge": input_edge_embedding, "input_node": input_node_embedding}
    _CONCAT_E2N.forward(
        output_embedding, given, graph, aggregation_operation, output_extrema_location
    )


@queued
def agg_concat_e2n_bwd(
    grad_input_edge: Array,
    grad_input_node: Array,
    grad_output: Array,
    graph: Any,
    dim_edge: int,
    dim_node: int,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_concat_e2n_fwd`."""
    grads = {"input_edge": grad_input_edge, "input_node": grad_input_node}
    _CONCAT_E2N.backward(
        grads,
        grad_output,
        graph,
        aggregation_operation,
        output_extrema_location,
        dim_node=dim_node,
        dim_edge=dim_edge,
    )


@queued
def agg_concat_n2n_e2n_fwd(
    output_embedding: Array,
    input_node_embedding: Array,
    input_edge_embedding: Array,
    graph: Any,
    dim_node: int,
    dim_edge: int,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Aggregate the features of sources and edges, and append the destination's own."""
    given = {"input_node": input_node_embedding, "input_edge": input_edge_embedding}
    _CONCAT_BOTH.forward(
        output_embedding,
        given,
        graph,
        aggregation_operation,
        output_extrema_location,
        dim_node=dim_node,
        dim_edge=dim_edge,
    )


@queued
def agg_concat_n2n_e2n_bwd(
    grad_input_node: Array,
    grad_input_edge: Array,
    grad_output: Array,
    graph: Any,
    dim_node: int,
    dim_edge: int,
    aggregation_operation: AggOp = AggOp.Sum,
    output_extrema_location: Any = None,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_concat_n2n_e2n_fwd`."""
    grads = {"input_node": grad_input_node, "input_edge": grad_input_edge}
    _CONCAT_BOTH.backward(
        grads,
        grad_output,
        graph,
        aggregation_operation,
        output_extrema_location,
        dim_node=dim_node,
        dim_edge=dim_edge,
    )
