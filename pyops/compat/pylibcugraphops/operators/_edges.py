"""Messages between edges, and edge updates: the agg_dmpnn and update_efeat calls.

In calls that return edge rows every edge has one entry; rows are in the order of the edge arrays.
``stream_id`` applies to arrays on a device, see `_queue`. Even then ``rev_edge_ids`` may be in host
memory. On the device it is read and checked on the first call with it, and must not be written to
after that: see `_remembered`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from ...._call.arrays import Array, check_size
from ....graph import Graph
from ....ops.aggregate import aggregate
from ....ops.edge_to_edge import edge_to_edge
from ....ops.edge_update import edge_update
from .._csc import BipartiteCsc
from .._csc_full import Csc
from .._names import in_names_of_call
from .._queue import made_of, on_device, queued
from .._remembered import on_host, remembered
from .._results import write
from ._reductions import check_call, table, tables

_MESSAGES = {"reverse": "rev_edge_ids"}
_UPDATES = {"edge": "grad_output_edge_embedding"}


@queued
@in_names_of_call(_MESSAGES)
def agg_dmpnn_e2e_fwd(
    output_edge_embedding: Array,
    input_edge_embedding: Array,
    graph: Any,
    rev_edge_ids: Any,
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


@queued
@in_names_of_call(_MESSAGES)
def agg_dmpnn_e2e_bwd(
    grad_input_edge_embedding: Array,
    grad_output_edge_embedding: Array,
    graph: Any,
    rev_edge_ids: Any,
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


def _reverse(rev_edge_ids: Any) -> Any:
    """Return row numbers on the host, where they are checked."""
    if not on_device(rev_edge_ids):
        return rev_edge_ids
    return remembered("reverse", [rev_edge_ids], lambda: on_host(rev_edge_ids))


def _update(caller: str, output: Any, edge: Any, src: Any, dst: Any, graph: Any, mode: str) -> None:
    g = check_call(caller, graph, BipartiteCsc)
    sizes = {"edge": g.num_edges, "src_node": g.num_src, "dst_node": g.num_dst}
    given = {
        f"input_{name}_embedding": (array, size)
        for (name, size), array in zip(sizes.items(), (edge, src, dst), strict=True)
        if array is not None
    }
    in_order, turned = _both_ways(caller, graph)
    if not given:
        raise TypeError(f"{caller}: expected an input embedding, got none")
    arrays = tables(caller, given)
    first, like = next(iter(arrays.items()))
    for name, array in arrays.items():
        if mode == "sum" and array.shape[1] != like.shape[1]:
            raise ValueError(
                f"{caller}: {name}: expected {like.shape[1]} columns like {first}, "
                f"got {array.shape}"
            )
    if src is not None:
        y = edge_update(in_order, src, dst, edge, mode=mode)
    elif dst is not None:
        y = edge_update(turned, dst, None, edge, mode=mode)
    else:
        y = edge
    write(caller, output_edge_embedding=(output, y))


def _both_ways(caller: str, holder: Any) -> tuple[Graph, Graph]:
    """Return the graph with its entries in edge order, and its reverse."""
    in_order = made_of(holder, "in order", lambda: _by_edges(caller, holder.graph))
    return in_order, made_of(holder, "turned", lambda: holder.made["in order"].reverse())


def _by_edges(caller: str, graph: Graph) -> Graph:
    """Return the graph with its entries in edge order."""
    order = np.argsort(graph.edge_ids, kind="stable")
    if not np.array_equal(graph.edge_ids[order], np.arange(graph.num_edges)):
        raise ValueError(f"{caller}: graph: expected one entry for each edge, got others")
    return Graph(graph.src[order], graph.dst[order], graph.num_src, graph.num_dst)


def _update_back(
    caller: str, grads: dict[str, Any], gy: Any, graph: Any, named: dict[str, int], mode: str
) -> None:
    g = check_call(caller, graph, BipartiteCsc)
    dims = [check_size(f"{caller}: {name}", dim, 0) for name, dim in named.items()]
    dims = dims * (3 // len(dims))
    in_order, turned = _both_ways(caller, graph)
    gy = table(f"{caller}: grad_output_edge_embedding", gy, g.num_edges)
    before = [0, *accumulate(dims)] if mode == "concat" else [0, 0, 0]
    width = sum(dims) if mode == "concat" else dims[0]
    if gy.shape[1] != width:
        raise ValueError(
            f"{caller}: grad_output_edge_embedding: expected shape ({g.num_edges}, {width}), "
            f"got {gy.shape}"
        )
    results = {}
    ways = {"edge": None, "src_node": turned, "dst_node": in_order}
    for (name, way), first, dim in zip(ways.items(), before, dims, strict=False):
        label = f"grad_input_{name}_embedding"
        if grads[label] is not None:
            part = gy[:, first : first + dim]
            results[label] = grads[label], part if way is None else aggregate(way, None, part)
    write(caller, **results)


@queued
@in_names_of_call(_UPDATES)
def update_efeat_e2e_concat_fwd(
    output_edge_embedding: Array,
    input_edge_embedding: Array | None,
    input_src_node_embedding: Array | None,
    input_dst_node_embedding: Array | None,
    graph: Any,
    stream_id: int = 0,
) -> None:
    """Concatenate the features of edges, sources and destinations that are not None."""
    given = input_edge_embedding, input_src_node_embedding, input_dst_node_embedding
    _update("update_efeat_e2e_concat_fwd", output_edge_embedding, *given, graph, "concat")


@queued
@in_names_of_call(_UPDATES)
def update_efeat_e2e_concat_bwd(
    grad_input_edge_embedding: Array | None,
    grad_input_src_node_embedding: Array | None,
    grad_input_dst_node_embedding: Array | None,
    grad_output_edge_embedding: Array,
    graph: Any,
    dim_edge: int,
    dim_src: int,
    dim_dst: int,
    stream_id: int = 0,
) -> None:
    """Compute gradients of `update_efeat_e2e_concat_fwd` that are not None; width 0 is absent."""
    grads = {name: array for name, array in locals().items() if name.startswith("grad_input")}
    dims = {"dim_edge": dim_edge, "dim_src": dim_src, "dim_dst": dim_dst}
    caller = "update_efeat_e2e_concat_bwd"
    _update_back(caller, grads, grad_output_edge_embedding, graph, dims, "concat")


@queued
@in_names_of_call(_UPDATES)
def update_efeat_e2e_sum_fwd(
    output_edge_embedding: Array,
    input_edge_embedding: Array | None,
    input_src_node_embedding: Array | None,
    input_dst_node_embedding: Array | None,
    graph: Any,
    stream_id: int = 0,
) -> None:
    """Sum the features of edges, sources and destinations that are not None."""
    given = input_edge_embedding, input_src_node_embedding, input_dst_node_embedding
    _update("update_efeat_e2e_sum_fwd", output_edge_embedding, *given, graph, "sum")


@queued
@in_names_of_call(_UPDATES)
def update_efeat_e2e_sum_bwd(
    grad_input_edge_embedding: Array | None,
    grad_input_src_node_embedding: Array | None,
    grad_input_dst_node_embedding: Array | None,
    grad_output_edge_embedding: Array,
    graph: Any,
    dim_edge: int,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `update_efeat_e2e_sum_fwd` that are not None."""
    grads = {name: array for name, array in locals().items() if name.startswith("grad_input")}
    caller = "update_efeat_e2e_sum_bwd"
    dims = {"dim_edge": dim_edge}
    _update_back(caller, grads, grad_output_edge_embedding, graph, dims, "sum")
