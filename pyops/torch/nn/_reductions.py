"""Reductions over groups of elements, by operations of torch or by operators on graphs."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ... import graph as _graph
from ... import torch as _ops
from ..._call.indices import check_bounds
from .._call import DTYPES, is_exporting, is_tracing
from .._graph import TracedGraph
from .._host import array_of, is_mapped, on_host
from .._phase import is_transformed, tracks_derivatives
from ._edges.cache import cached
from ._edges.edge_index import rows_of
from ._edges.routes import is_packed

SUMS: dict[str, Literal["sum", "mean"]] = {"sum": "sum", "add": "sum", "mean": "mean"}
EXTREMES: dict[str, Literal["amax", "amin"]] = {
    "max": "amax",
    "amax": "amax",
    "min": "amin",
    "amin": "amin",
}
REDUCTIONS = *SUMS, *EXTREMES, "mul", "any"
_NARROW = {"segment_softmax": 4, "aggregate": 8}
"""Number of columns below which operations of torch are as fast at any size."""

_SELECTED = 2**12
"""Elements of a vector from which `index_add` outperforms `scatter_add`: its backward pass gathers
by `index_select`, but the call has more overhead."""


def is_by_torch(operator: str, src: Tensor, dim: int, index: Tensor) -> bool:
    """Return whether operations of torch do the reduction, as they do in PyTorch Geometric.

    While torch records, the number of rows may be a symbol, which is not tested.
    """
    if src.dtype not in DTYPES or is_mapped(index):
        return True
    if is_exporting():
        return False
    columns = 1
    for place, size in enumerate(src.shape):
        columns *= 1 if place == dim else size
    if columns < _NARROW[operator]:
        return True
    return not is_tracing(src) and not (src.numel() and is_packed(operator, src.numel(), index))


def aggregated(graph: _graph.Graph | TracedGraph, rows: Tensor, groups: int, reduce: str) -> Tensor:
    name = SUMS[reduce] if reduce in SUMS else EXTREMES[reduce]
    found = _ops.aggregate(graph, None, _columns(rows), reduce=name)
    return found.reshape(groups, *rows.shape[1:])


def softmax_by_operator(graph: _graph.Graph | TracedGraph, rows: Tensor) -> Tensor:
    return _ops.segment_softmax(graph, _columns(rows)).reshape(rows.shape)


def contiguous_gradient(given: Tensor) -> Tensor:
    """Return a view whose gradient is made contiguous, for callers that transpose it."""
    if not given.requires_grad or is_tracing(given) or is_transformed():
        return given
    given = given.view_as(given)
    given.register_hook(Tensor.contiguous)
    return given


def rows_first(src: Tensor, dim: int) -> Tensor:
    return contiguous_gradient(src).movedim(dim, 0) if dim else src


def _columns(rows: Tensor) -> Tensor:
    return rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)


def reduced_by_torch(
    name: str, src: Tensor, index: Tensor, dim: int, groups: int, reduce: str
) -> Tensor:
    """Reduce along a dimension by operations of torch, which check the index."""
    shape, positions = [*src.shape], index
    shape[dim] = groups
    if len(shape) > 1:
        along = [1] * len(shape)
        along[dim] = -1
        positions = index.view(along).expand_as(src)
    try:
        if reduce in SUMS:
            total = _add(src.new_zeros(shape), dim, positions, src)
            if reduce != "mean":
                return total
            ones = src.new_ones(index.shape)
            counts = _add(src.new_zeros(groups), 0, index, ones).clamp(min=1)
            return total / (counts if len(shape) == 1 else counts.view(along))
        if reduce in EXTREMES:
            tracked = src.is_floating_point() and (is_tracing(src) or tracks_derivatives((src,)))
            # torch gives a share of the gradient to initial elements that equal the result
            first = src.new_full(shape, math.nan) if tracked else src.new_zeros(shape)
            found = first.scatter_reduce(dim, positions, src, EXTREMES[reduce], include_self=False)
            if not tracked:
                return found
            empty = index.new_ones(groups).scatter(0, index, 0).bool()
            return found.masked_fill(empty if len(shape) == 1 else empty.view(along), 0)
        if reduce == "mul":
            return src.new_ones(shape).scatter_reduce(dim, positions, src, "prod")
        return src.new_zeros(shape).scatter(dim, positions, src)
    except (IndexError, RuntimeError):
        check_groups(name, index, groups)
        raise


def _add(total: Tensor, dim: int, positions: Tensor, src: Tensor) -> Tensor:
    if not is_tracing(src) and src.dim() == 1 and src.shape[0] >= _SELECTED:
        return total.index_add(0, positions, src)
    # In place, except under vmap, where the total may not be batched.
    found: Tensor = (total.scatter_add if is_transformed() else total.scatter_add_)(
        dim, positions, src
    )
    return found


def softmax_by_torch(name: str, src: Tensor, index: Tensor, dim: int, groups: int) -> Tensor:
    tops = reduced_by_torch(name, src.detach(), index, dim, groups, "max")
    powers = (src - tops.index_select(dim, index)).exp()
    totals = reduced_by_torch(name, powers, index, dim, groups, "sum")
    return powers / totals.index_select(dim, index)


def check_groups(name: str, index: Tensor, groups: int) -> None:
    """Refuse an index that exceeds the number of groups."""
    if not is_tracing(index) and not is_mapped(index):
        check_bounds(f"{name}: index", array_of(index), groups, "groups")


def by_index(name: str, index: Tensor, groups: int) -> _graph.Graph | TracedGraph:
    """Return the graph of entries from one unused source node to their groups."""
    if is_tracing(index):
        return TracedGraph(torch.zeros_like(index), index, 1, groups)

    held = on_host(index)

    def pack() -> _graph.Graph:
        try:
            return _graph._of_groups(held.numpy(), groups)
        except IndexError as error:
            raise IndexError(f"{name}: index: {error}") from None

    return cached([held], ("groups", groups), pack, lambda graph: [graph._dst])


def by_offsets(ptr: Tensor, count: int) -> _graph.Graph | TracedGraph:
    groups = ptr.shape[0] - 1
    if is_tracing(ptr):
        index = rows_of(ptr, count)
        return TracedGraph(torch.zeros_like(index), index, 1, groups)

    held = on_host(ptr)

    def pack() -> _graph.Graph:
        return _graph._of_groups(rows_of(held, count).numpy(), groups)

    return cached([held], "offsets", pack)
