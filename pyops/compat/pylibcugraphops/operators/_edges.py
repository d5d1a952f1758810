"""Messages between edges, and edge updates: the agg_dmpnn and update_efeat calls.

In calls that return edge rows every edge has one entry; rows are in the order of the edge arrays.
``stream_id`` applies to arrays on a device, see `_queue`. Even then ``rev_edge_ids`` may be in host
memory. On the device it is read and checked on the first call with it, and must not be written to
after that: see `_index_cache`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...._call.arrays import check_size
from ....graph import Graph
from ....ops.aggregate import aggregate
from ....ops.edge_to_edge import edge_to_edge
from ....ops.edge_update import edge_update
from .._csc import BipartiteCsc
from .._csc_full import Csc
from .._index_cache import cached, on_host
from .._queue import AnyGraph, derived_graph, on_device, queue, queued, signature_of
from .._results import write
from ._reductions import check_call, table, tables

if TYPE_CHECKING:
    from ...._call.types import Array, Values

_MESSAGES = {"reverse": "rev_edge_ids"}
_UPDATES = {"edge": "grad_output_edge_embedding"}


@queued(_MESSAGES)
def agg_dmpnn_e2e_fwd(
    output_edge_embedding: Array,
    input_edge_embedding: Array,
    graph: Csc,
    rev_edge_ids: npt.ArrayLike,
    concat_own: bool = False,
    stream_id: int = 0,
) -> None:
    """See `pyops.edge_to_edge`; `concat_own` appends the features of the edge to the sum."""
    caller = "agg_dmpnn_e2e_fwd"
    g = check_call(caller, graph, Csc)
    h = table(f"{caller}: input_edge_embedding", input_edge_embedding, g.num_edges)
    y = edge_to_edge(g, h, exclude="image", reverse=_reverse(rev_edge_ids))
    y = np.concatenate([y, h], axis=1) if concat_own else y
    write(caller, output_edge_embedding=(output_edge_embedding, y))


@queued(_MESSAGES)
def agg_dmpnn_e2e_bwd(
    grad_input_edge_embedding: Array,
    grad_output_edge_embedding: Array,
    graph: Csc,
    rev_edge_ids: npt.ArrayLike,
    concat_own: bool = False,
    stream_id: int = 0,
) -> None:
    """Compute the gradient of `agg_dmpnn_e2e_fwd`."""
    caller = "agg_dmpnn_e2e_bwd"
    g = check_call(caller, graph, Csc)
    gy = table(f"{caller}: grad_output_edge_embedding", grad_output_edge_embedding, g.num_edges)
    width, odd = divmod(gy.shape[1], 1 + bool(concat_own))
    if odd:
        raise ValueError(
            f"{caller}: grad_output_edge_embedding: expected an even number of columns, "
            f"got shape {gy.shape}"
        )
    sums, reverse = gy[:, :width], _reverse(rev_edge_ids)
    (gh,) = edge_to_edge.backward(g, np.zeros_like(sums), sums, exclude="image", reverse=reverse)
    assert gh is not None
    gh = gh + gy[:, width:] if concat_own else gh
    write(caller, grad_input_edge_embedding=(grad_input_edge_embedding, gh))


def _reverse(rev_edge_ids: npt.ArrayLike) -> npt.ArrayLike:
    """Return row numbers on the host, where they are checked."""
    if not on_device(rev_edge_ids):
        return rev_edge_ids
    return cached("reverse", [rev_edge_ids], lambda: on_host(rev_edge_ids))


class EdgeUpdate:
    """A pair of calls, which concatenate or sum the features of edges and of both ends."""

    def __init__(self, mode: str, summary: str, dims: str) -> None:
        self.name, self.mode, self.dims = f"update_efeat_e2e_{mode}", mode, dims.split()
        self.inputs = [f"input_{name}_embedding" for name in ("edge", "src_node", "dst_node")]
        doc = f"Compute the gradients of `{self.name}_fwd` that are not None."
        if mode == "concat":
            doc = f"Compute gradients of `{self.name}_fwd` that are not None; width 0 is absent."
        gradients, last = [f"grad_{name}" for name in self.inputs], {"stream_id": 0}
        forward = signature_of(["output_edge_embedding", *self.inputs, "graph"], last, self.inputs)
        backward = signature_of(
            [*gradients, "grad_output_edge_embedding", "graph", *self.dims], last, gradients
        )
        self.calls = (
            queue(f"{self.name}_fwd", summary, __name__, forward, self.forward, _UPDATES),
            queue(f"{self.name}_bwd", doc, __name__, backward, self.backward, _UPDATES),
        )

    def forward(self, values: Values) -> None:
        caller = f"{self.name}_fwd"
        g = check_call(caller, values["graph"])
        sizes = zip(self.inputs, (g.num_edges, g.num_src, g.num_dst), strict=True)
        given = {n: (values[n], size) for n, size in sizes if values[n] is not None}
        in_order, reverse = _both_directions(caller, values["graph"])
        if not given:
            raise TypeError(f"{caller}: expected an input embedding, got none")
        arrays = tables(caller, given)
        first, like = next(iter(arrays.items()))
        for name, array in arrays.items():
            if self.mode == "sum" and array.shape[1] != like.shape[1]:
                raise ValueError(
                    f"{caller}: {name}: expected {like.shape[1]} columns like {first}, "
                    f"got {array.shape}"
                )
        edge, src, dst = map(arrays.get, self.inputs)
        if src is not None:
            y = edge_update(in_order, src, dst, edge, mode=self.mode)
        elif dst is not None:
            y = edge_update(reverse, dst, None, edge, mode=self.mode)
        else:
            y = edge
        write(caller, output_edge_embedding=(values["output_edge_embedding"], y))

    def backward(self, values: Values) -> None:
        caller = f"{self.name}_bwd"
        g = check_call(caller, values["graph"])
        dims = [check_size(f"{caller}: {name}", values[name], 0) for name in self.dims]
        in_order, reverse = _both_directions(caller, values["graph"])
        label = f"{caller}: grad_output_edge_embedding"
        gy = table(label, values["grad_output_edge_embedding"], g.num_edges)
        width, firsts = sum(dims), [0, *accumulate(dims)]
        if self.mode == "sum":
            dims, firsts = dims * 3, [0, 0, 0]
        if gy.shape[1] != width:
            raise ValueError(f"{label}: expected shape ({g.num_edges}, {width}), got {gy.shape}")
        results: dict[str, tuple[object, Array]] = {}
        graphs = None, reverse, in_order
        for name, graph, first, dim in zip(self.inputs, graphs, firsts, dims, strict=False):
            label = f"grad_{name}"
            if values[label] is not None:
                columns = gy[:, first : first + dim]
                gradient = columns if graph is None else aggregate(graph, None, columns)
                results[label] = values[label], gradient
        write(caller, **results)


def _both_directions(caller: str, holder: object) -> tuple[AnyGraph, AnyGraph]:
    """Return the graph with its entries in edge order, and its reverse."""
    assert isinstance(holder, BipartiteCsc)
    in_order = derived_graph(holder, "in order", lambda: _by_edges(caller, holder.graph))
    reverse = derived_graph(holder, "reverse", lambda: _by_edges(caller, holder.graph).reverse())
    return in_order, reverse


def _by_edges(caller: str, graph: Graph) -> Graph:
    """Return the graph with its entries in edge order."""
    order = np.argsort(graph.edge_ids, kind="stable")
    if not np.array_equal(graph.edge_ids[order], np.arange(graph.num_edges)):
        raise ValueError(f"{caller}: graph: expected one entry for each edge, got others")
    return Graph(graph.src[order], graph.dst[order], graph.num_src, graph.num_dst)


update_efeat_e2e_concat_fwd, update_efeat_e2e_concat_bwd = EdgeUpdate(
    "concat",
    "Concatenate the features of edges, sources and destinations that are not None.",
    "dim_edge dim_src dim_dst",
).calls
update_efeat_e2e_sum_fwd, update_efeat_e2e_sum_bwd = EdgeUpdate(
    "sum", "Sum the features of edges, sources and destinations that are not None.", "dim_edge"
).calls
