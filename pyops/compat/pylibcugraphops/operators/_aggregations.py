"""Aggregations: the agg_* calls, with outputs of the caller.

Messages are the features of sources (n2n), of edges (e2n), or both side by side; ``concat`` appends
the destination's own features. For a maximum or minimum, ``output_extrema_location`` receives the
number of the entry that attains it, the first of equals, -1 in empty rows. Weighted means are
divided by the sum of the weights, which is stored in ``node_degree`` if that is given.
``stream_id`` applies to arrays on a device, see `_queue`. There, backward calls do not check the
locations given to them: an entry of another destination contributes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ...._call.arrays import check_size
from ....ops.aggregate import aggregate
from .._csc import BipartiteCsc
from .._csc_full import Csc
from .._queue import AnyGraph, queue, signature_of
from .._results import write
from ._extremes import back_by_extremes, check_unread, find_extremes, read_extremes
from ._reductions import EXTREMES, AggOp, check_call, check_operation, tables

if TYPE_CHECKING:
    from ...._call.indices import Indices
    from ...._call.types import Array, Values

LAST = {"aggregation_operation": AggOp.Sum, "output_extrema_location": None, "stream_id": 0}
"""Last parameters of the calls, with their defaults."""
Pair = tuple[Callable[..., None], Callable[..., None]]


class Aggregation:
    """A pair of calls: which features are the messages, and which own features are appended.

    `nodes`, `edges` and `own` are names of features, `forward_dims` and `backward_dims` the widths
    that the calls take.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        *,
        nodes: str = "",
        edges: str = "",
        own: str = "",
        forward_dims: str = "",
        backward_dims: str = "",
    ) -> None:
        self.name, self.nodes, self.edges, self.own = name, nodes, edges, own
        names = [n for n in dict.fromkeys((nodes, edges, own)) if n]
        self.inputs = {f"{n}_embedding": n for n in names}
        self.gradients = {f"grad_{n}": n for n in names}
        forward = "output_embedding", *self.inputs, "graph", *forward_dims.split()
        backward = *self.gradients, "grad_output", "graph", *backward_dims.split()
        doc = f"Compute the gradients of `{name}_fwd`."
        self.calls: Pair = (
            queue(f"{name}_fwd", summary, __name__, signature_of(forward, LAST), self.forward, {}),
            queue(f"{name}_bwd", doc, __name__, signature_of(backward, LAST), self.backward, {}),
        )

    def check(self, caller: str, values: Values) -> tuple[AnyGraph, AggOp, dict[str, int]]:
        """Return graph, operation, and the number of rows of each of the features."""
        g = check_call(caller, values["graph"], Csc if self.own else BipartiteCsc)
        operation = check_operation(caller, values["aggregation_operation"])
        return g, operation, {self.nodes: g.num_src, self.edges: g.num_edges, self.own: g.num_dst}

    def forward(self, values: Values) -> None:
        caller = f"{self.name}_fwd"
        g, operation, sizes = self.check(caller, values)
        named = {label: (values[label], sizes[n]) for label, n in self.inputs.items()}
        arrays = dict(zip(self.inputs.values(), tables(caller, named).values(), strict=True))
        _check_widths(caller, values, arrays)
        x, edge, own = map(arrays.get, (self.nodes, self.edges, self.own))
        y = aggregate(g, x, edge, None, own, reduce=operation.value)
        location = values["output_extrema_location"]
        outputs: dict[str, tuple[object, Array | Indices]] = {}
        outputs["output_embedding"] = values["output_embedding"], y
        if operation not in EXTREMES:
            check_unread(f"{caller}: output_extrema_location", location)
        elif location is not None:
            found = find_extremes(g, x, edge, None, y, operation)
            outputs["output_extrema_location"] = location, found
        write(caller, **outputs)

    def backward(self, values: Values) -> None:
        caller = f"{self.name}_bwd"
        g, operation, sizes = self.check(caller, values)
        named = {label: (values[label], sizes[n]) for label, n in self.gradients.items()}
        outs = tables(caller, {"grad_output": (values["grad_output"], g.num_dst), **named})
        gy, *others = outs.values()
        arrays = dict(zip(self.gradients.values(), others, strict=True))
        _check_widths(caller, values, arrays)
        parts = self.nodes, self.edges, self.own
        widths = [arrays[n].shape[1] if n else 0 for n in parts]
        first = [0, *accumulate(widths)]
        if gy.shape[1] != first[-1]:
            raise ValueError(
                f"{caller}: grad_output: expected shape ({g.num_dst}, {first[-1]}), got {gy.shape}"
            )
        messages, location = gy[:, : first[2]], values["output_extrema_location"]
        results: dict[str, Array] = {}
        if operation in EXTREMES:
            entries = read_extremes(caller, g, location, messages.shape)
            for of_edges, n in enumerate(parts[:2]):
                if n:
                    columns = slice(*first[of_edges : of_edges + 2])
                    results[n] = back_by_extremes(g, entries, messages, columns, bool(of_edges))
        else:
            check_unread(f"{caller}: output_extrema_location", location)
            zeros = [
                np.zeros_like(gy, shape=(sizes[n], width)) if n else None
                for n, width in zip(parts[:2], widths, strict=False)
            ]
            back = aggregate.backward(g, *zeros, None, None, messages, reduce=operation.value)
            results = {n: a for n, a in zip(parts, back, strict=False) if n and a is not None}
        if self.own:
            own = gy[:, first[2] :]
            results[self.own] = results.get(self.own, np.zeros_like(own)) + own
        write(caller, **{f"grad_{n}": (values[f"grad_{n}"], a) for n, a in results.items()})


def _check_widths(caller: str, values: Values, arrays: Mapping[str, Array]) -> None:
    """Check the widths that a call names against those of its arrays."""
    for name in "dim_node", "dim_edge":
        if name in values:
            width = arrays[name.replace("dim", "input")].shape[1]
            if check_size(f"{caller}: {name}", values[name], 0) != width:
                raise ValueError(
                    f"{caller}: {name}: expected the width {width}, got {values[name]}"
                )


agg_simple_n2n_fwd, agg_simple_n2n_bwd = Aggregation(
    "agg_simple_n2n", "Aggregate the features of the sources.", nodes="input"
).calls
agg_simple_e2n_fwd, agg_simple_e2n_bwd = Aggregation(
    "agg_simple_e2n", "Aggregate the features of the edges.", edges="input"
).calls
agg_simple_n2n_e2n_fwd, agg_simple_n2n_e2n_bwd = Aggregation(
    "agg_simple_n2n_e2n",
    "Aggregate the features of the sources and of the edges.",
    nodes="input_node",
    edges="input_edge",
).calls
agg_concat_n2n_fwd, agg_concat_n2n_bwd = Aggregation(
    "agg_concat_n2n",
    "Aggregate the features of the sources, and append the destination's own.",
    nodes="input",
    own="input",
).calls
agg_concat_e2n_fwd, agg_concat_e2n_bwd = Aggregation(
    "agg_concat_e2n",
    "Aggregate the features of the edges, and append the destination's own.",
    edges="input_edge",
    own="input_node",
    backward_dims="dim_edge dim_node",
).calls
agg_concat_n2n_e2n_fwd, agg_concat_n2n_e2n_bwd = Aggregation(
    "agg_concat_n2n_e2n",
    "Aggregate the features of sources and edges, and append the destination's own.",
    nodes="input_node",
    edges="input_edge",
    own="input_node",
    forward_dims="dim_node dim_edge",
    backward_dims="dim_node dim_edge",
).calls
