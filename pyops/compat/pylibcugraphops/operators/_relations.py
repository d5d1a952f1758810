"""Sums of neighbour features by relations: the agg_hg_basis calls.

``stream_id`` applies to arrays on a device, see `_queue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....graph import _of_groups
from ....ops.aggregate import aggregate
from ....ops.hetero_basis import hetero_basis
from .._csc_full import Hetero
from .._queue import AnyGraph, derived_array, derived_graph, queued
from .._results import write
from ._reductions import check_alike, check_call, table

if TYPE_CHECKING:
    from ...._call.types import Array

_NAMES = {"x": "input_embedding", "weight": "weights_combination", "gy": "grad_output"}


@queued(_NAMES)
def agg_hg_basis_n2n_post_fwd(
    output_embedding: Array,
    input_embedding: Array,
    weights_combination: Array | None,
    graph: Hetero,
    concat_own: bool = False,
    norm_by_out_degree: bool = False,
    stream_id: int = 0,
) -> None:
    """See `pyops.hetero_basis`; without weights each edge type is a basis.

    `concat_own` appends the features of the destination, which are the first of the sources;
    with `norm_by_out_degree` the entries of one type into a destination are averaged.
    """
    caller = "agg_hg_basis_n2n_post_fwd"
    x = input_embedding
    g, weight, _ = _relations(caller, x, weights_combination, graph, norm_by_out_degree)
    y = hetero_basis(g, x, weight)
    y = np.concatenate([y, _own(caller, x, g)], axis=1) if concat_own else y
    write(caller, output_embedding=(output_embedding, y))


@queued(_NAMES)
def agg_hg_basis_n2n_post_bwd(
    grad_input: Array | None,
    grad_weights: Array | None,
    grad_output: Array,
    input_embedding: Array,
    weights_combination: Array | None,
    graph: Hetero,
    concat_own: bool = False,
    norm_by_out_degree: bool = False,
    stream_id: int = 0,
) -> None:
    """Compute the gradients of `agg_hg_basis_n2n_post_fwd` that are not None."""
    caller = "agg_hg_basis_n2n_post_bwd"
    x = input_embedding
    g, weight, shares = _relations(caller, x, weights_combination, graph, norm_by_out_degree)
    width = weight.shape[1] * x.shape[1]
    gy = table(f"{caller}: grad_output", grad_output, g.num_dst)
    check_alike(f"{caller}: grad_output", gy, "input_embedding", x)
    if gy.shape[1] != width + concat_own * x.shape[1]:
        raise ValueError(
            f"{caller}: grad_output: expected {width + concat_own * x.shape[1]} columns, "
            f"got {gy.shape}"
        )
    gx, gw = hetero_basis.backward(g, x, weight, gy[:, :width])
    assert gx is not None
    assert gw is not None
    results = {}
    if grad_input is not None:
        if concat_own:
            own = _own(caller, gx, g)
            own += gy[:, width:]
        results["grad_input"] = grad_input, gx
    if grad_weights is not None:
        if shares is not None:
            types, count = graph.edge_types, graph.n_edge_types
            groups = derived_graph(graph, "groups", lambda: _of_groups(types, count))
            gw = aggregate(groups, None, gw, shares)
        results["grad_weights"] = grad_weights, gw
    write(caller, **results)


def _own(caller: str, x: Array, graph: AnyGraph) -> Array:
    """Return the rows of the destinations, which are the first of the sources."""
    if graph.num_src < graph.num_dst:
        raise ValueError(
            f"{caller}: concat_own: expected at least {graph.num_dst} sources, of which the first "
            f"are the destinations, got {graph.num_src}"
        )
    rows: Array = x[: graph.num_dst]
    return rows


class _Relations(NamedTuple):
    """A graph of relations, its weights, and the averaging factors of entries, if any."""

    graph: AnyGraph
    weight: Array
    shares: Array | None


def _relations(
    caller: str, x: Array, weight: Array | None, graph: Hetero, normed: bool
) -> _Relations:
    """Return the inputs of `hetero_basis`, on the device of the call."""
    g = check_call(caller, graph, Hetero)
    x = table(f"{caller}: input_embedding", x, g.num_src)
    host, types, count = graph.graph, graph.edge_types, graph.n_edge_types
    if weight is None:
        weight = derived_array(graph, f"bases {x.dtype}", lambda: np.eye(count, dtype=x.dtype))
    weight = table(f"{caller}: weights_combination", weight, count)
    check_alike(f"{caller}: weights_combination", weight, "input_embedding", x)
    if not normed:
        typed = derived_graph(graph, "typed", lambda: host.with_edge_ids(types, count))
        return _Relations(typed, weight, None)

    def share() -> Array:
        pairs = host.dst.astype(np.int64) * count + types
        _, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        shares: Array = (1 / counts[which]).astype(x.dtype)
        return shares

    entries = host.num_entries
    numbered = derived_graph(
        graph, "entries", lambda: host.with_edge_ids(np.arange(entries), entries)
    )
    shares = derived_array(graph, f"shares {x.dtype}", share)
    of_entries = weight[derived_array(graph, "types", lambda: types)]
    return _Relations(numbered, shares[:, None] * of_entries, shares)
