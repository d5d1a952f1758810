"""Softmax and reductions over groups of rows, as PyTorch Geometric calls them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ... import graph as _graph
from ... import torch as _ops
from ..._call.indices import check_bounds
from .._call import DTYPES, exporting, is_integer, jit_tracing, recording
from .._graph import Ends
from .._host import array_of, is_mapped, on_host
from .._phases import is_recorded, moving
from ._edge_index import check_offsets, integers, placed, rows_of
from ._remember import remembered
from ._routes import is_packed

_SUMS: dict[str, Literal["sum", "mean"]] = {"sum": "sum", "add": "sum", "mean": "mean"}
_EXTREMES = {"max": "amax", "amax": "amax", "min": "amin", "amin": "amin"}
REDUCTIONS = *_SUMS, *_EXTREMES, "mul", "any"
_NARROW = {"segment_softmax": 4, "aggregate": 8}
"""Number of columns below which operations of torch are as fast at any size."""

_SELECTED = 2**12
"""Elements of a vector from which `index_add` outperforms `scatter_add`: its backward pass gathers
by `index_select`, but the call has more overhead."""


def softmax(
    src: Tensor,
    index: Tensor | None = None,
    ptr: Tensor | None = None,
    num_nodes: int | None = None,
    dim: int = 0,
) -> Tensor:
    """Softmax over the elements of each group.

    Parameters
    ----------
    src : tensor
    index : tensor of integers, optional
        The group of each element along `dim`.
    ptr : tensor of integers, optional
        Offsets of the groups, with the end of the last one; takes precedence over `index`.
    num_nodes : int, optional
        Number of groups; one more than the largest index if not given.
    dim : int
        The dimension of the groups.

    Returns
    -------
    tensor of the shape of `src`
    """
    name = "pyops.torch.nn.softmax"
    dim = _dimension(name, src, dim)
    count = src.shape[dim]
    if ptr is not None:
        index = None
        ptr = check_offsets(f"{name}: ptr", ptr, count)
        groups = ptr.shape[0] - 1
    elif index is not None:
        index = _checked_index(name, index, count)
        groups = groups_of(f"{name}: num_nodes", index, num_nodes)
    else:
        raise NotImplementedError(f"{name}: index: expected one, or ptr")
    if not recording(src) and not src.numel():
        return src.exp()  # as floating-point numbers
    if _by_torch("segment_softmax", src, dim, ptr if index is None else index):
        index = rows_of(ptr, count) if index is None else index
        return _softmax(name, src, index.long(), dim, groups)
    graph = _by_offsets(ptr, count) if index is None else _by_index(name, index, groups)
    rows = _rows(src, dim)
    found = _ops.segment_softmax(graph, _columns(rows)).reshape(rows.shape)
    return found.movedim(0, dim).contiguous()


def scatter(
    src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum"
) -> Tensor:
    """Reduce the elements of each group; groups without elements get 0.

    Parameters
    ----------
    src : tensor
    index : tensor of integers, one dimension
        The group of each element along `dim`.
    dim : int
        The dimension of the groups.
    dim_size : int, optional
        Number of groups; one more than the largest index if not given.
    reduce : {"sum", "add", "mean", "max", "min", "mul", "any"}
        The gradient of a maximum or minimum is shared by all elements that attain it; products
        of groups without elements are 1.

    Returns
    -------
    tensor
        As `src`, with `dim_size` in place of the number of elements.
    """
    name = "pyops.torch.nn.scatter"
    dim = _dimension(name, src, dim)
    if reduce not in REDUCTIONS:
        raise ValueError(f"{name}: reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    count = src.shape[dim]
    index = _checked_index(name, index, count)
    groups = groups_of(f"{name}: dim_size", index, dim_size)
    by_operator = reduce in _SUMS or (exporting() and reduce in _EXTREMES)
    if not by_operator or _by_torch("aggregate", src, dim, index):
        return _reduced(name, src, index.long(), dim, groups, reduce)
    found = _aggregated(_by_index(name, index, groups), _rows(src, dim), groups, reduce)
    return found.movedim(0, dim).contiguous()


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
    """Reduce the rows of each segment; segments without rows get 0.

    Parameters
    ----------
    src : tensor, shape (rows, ...)
    ptr : tensor of integers, shape (segments + 1,)
        Offsets of the segments, with the end of the last one.
    reduce : {"sum", "mean", "max", "min"}
        A maximum or minimum is torch's: it is differentiable once, in reverse mode.

    Returns
    -------
    tensor, shape (segments, ...)
    """
    name = "pyops.torch.nn.segment"
    if reduce not in (*_SUMS, *_EXTREMES):
        expected = ", ".join((*_SUMS, *_EXTREMES))
        raise ValueError(f"{name}: reduce: expected one of {expected}, got {reduce!r}")
    count = src.shape[_dimension(name, src, 0)]
    ptr = check_offsets(f"{name}: ptr", ptr, count)
    groups = ptr.shape[0] - 1
    if reduce in _EXTREMES and not exporting():
        found = torch._segment_reduce(src, _EXTREMES[reduce], offsets=ptr)
        empty = (ptr.diff() == 0).view(-1, *[1] * (src.dim() - 1))
        return torch.where(empty, 0, found)
    if not _by_torch("aggregate", src, 0, ptr):
        return _aggregated(_by_offsets(ptr, count), src, groups, reduce)
    if src.dtype in DTYPES and not recording(ptr) and not is_recorded((src,)):
        return torch._segment_reduce(src, _SUMS[reduce], offsets=ptr, initial=0)
    total = _reduced(name, src, rows_of(ptr, count).long(), 0, groups, "sum")
    if reduce != "mean":
        return total
    return total / ptr.diff().clamp(min=1).view(-1, *[1] * (src.dim() - 1))


def groups_of(label: str, index: Tensor, given: int | None, name: str = "index") -> int:
    """Return the number of groups, by default one more than the largest index.

    `name` is the name of the index in error messages.
    """
    if given is not None:
        if not is_integer(given):
            raise TypeError(f"{label}: expected an integer, got {given!r}")
        if not jit_tracing() and given < 0:
            raise ValueError(f"{label}: expected at least 0, got {given}")
        return given
    if is_mapped(index):
        raise NotImplementedError(f"{label}: expected an integer where vmap maps over the index")
    if jit_tracing():
        groups: int = torch.cat([index.long(), index.new_full((1,), -1)]).max() + 1
        return groups
    if exporting():
        largest: int = index.max().item()  # a symbolic size, computed when the program runs
        torch._check(largest >= 0)
        return largest + 1
    largest = int(on_host(index).max()) if index.numel() else -1
    if index.numel() and largest < 0 and not recording(index):
        caller = label.partition(": ")[0]
        raise IndexError(f"{caller}: {name}: expected indices from 0 on, got {largest}")
    return largest + 1


def _by_torch(operator: str, src: Tensor, dim: int, index: Tensor) -> bool:
    """Return whether operations of torch do the reduction, as they do in PyTorch Geometric.

    The operators do not split the gradient of a maximum or minimum among ties, so torch reduces
    these at any size. While torch records, the number of rows may be a symbol, which is not tested.
    """
    if src.dtype not in DTYPES or is_mapped(index):
        return True
    if exporting():
        return False
    columns = 1
    for place, size in enumerate(src.shape):
        columns *= 1 if place == dim else size
    if columns < _NARROW[operator]:
        return True
    return not recording(src) and not (src.numel() and is_packed(operator, src.numel(), index))


def _aggregated(graph: _graph.Graph | Ends, rows: Tensor, groups: int, reduce: str) -> Tensor:
    extreme: Literal["max", "min"] = "max" if _EXTREMES.get(reduce) == "amax" else "min"
    name = _SUMS.get(reduce, extreme)
    found = _ops.aggregate(graph, None, _columns(rows), reduce=name)
    return found.reshape(groups, *rows.shape[1:])


def contiguous_gradient(given: Tensor) -> Tensor:
    """Return a view whose gradient is made contiguous, for callers that transpose it."""
    if not given.requires_grad or recording(given) or moving():
        return given
    given = given.view_as(given)
    given.register_hook(Tensor.contiguous)
    return given


def _rows(src: Tensor, dim: int) -> Tensor:
    return contiguous_gradient(src).movedim(dim, 0) if dim else src


def _columns(rows: Tensor) -> Tensor:
    return rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)


def _reduced(name: str, src: Tensor, index: Tensor, dim: int, groups: int, reduce: str) -> Tensor:
    """Reduce along a dimension by operations of torch, which check the index."""
    shape, places = [*src.shape], index
    shape[dim] = groups
    if len(shape) > 1:
        along = [1] * len(shape)
        along[dim] = -1
        places = index.view(along).expand_as(src)
    try:
        if reduce in _SUMS:
            total = _added(src.new_zeros(shape), dim, places, src)
            if reduce != "mean":
                return total
            ones = src.new_ones(index.shape)
            counts = _added(src.new_zeros(groups), 0, index, ones).clamp(min=1)
            return total / (counts if len(shape) == 1 else counts.view(along))
        if reduce in _EXTREMES:
            zeros = src.new_zeros(shape)
            return zeros.scatter_reduce(dim, places, src, _EXTREMES[reduce], include_self=False)
        if reduce == "mul":
            return src.new_ones(shape).scatter_reduce(dim, places, src, "prod")
        return src.new_zeros(shape).scatter(dim, places, src)
    except (IndexError, RuntimeError):
        check_groups(name, index, groups)
        raise


def _added(total: Tensor, dim: int, places: Tensor, src: Tensor) -> Tensor:
    if not recording(src) and src.dim() == 1 and src.shape[0] >= _SELECTED:
        return total.index_add(0, places, src)
    # In place, except under vmap, where the total may not be batched.
    found: Tensor = (total.scatter_add if moving() else total.scatter_add_)(dim, places, src)
    return found


def _softmax(name: str, src: Tensor, index: Tensor, dim: int, groups: int) -> Tensor:
    tops = _reduced(name, src.detach(), index, dim, groups, "max")
    powers = (src - tops.index_select(dim, index)).exp()
    totals = _reduced(name, powers, index, dim, groups, "sum")
    return powers / totals.index_select(dim, index)


def _dimension(name: str, src: Tensor, dim: int) -> int:
    """Check a dimension and return it as a nonnegative number."""
    if not isinstance(src, Tensor) or not src.is_cpu:
        placed(f"{name}: src", src)
    dims: int = src.dim()
    if src.layout is not torch.strided:
        raise TypeError(f"{name}: src: expected a dense tensor, got layout {src.layout}")
    if not is_integer(dim) and not isinstance(dim, bool):
        raise TypeError(f"{name}: dim: expected an integer, got {dim!r}")
    if not -dims <= dim < dims:
        raise ValueError(f"{name}: dim: expected one of {dims} dimensions, got {dim}")
    return dim % dims


def _checked_index(name: str, index: Tensor, count: int) -> Tensor:
    if type(index) is not Tensor or not index.is_cpu or index.dtype is not torch.int64:
        index = integers(f"{name}: index", index)
    shape = index.shape
    if len(shape) != 1:
        raise ValueError(f"{name}: index: expected one dimension, got {len(shape)}")
    if shape[0] != count:
        raise ValueError(f"{name}: index: expected shape ({count},), got {tuple(shape)}")
    return index


def check_groups(name: str, index: Tensor, groups: int) -> None:
    """Refuse an index that exceeds the number of groups."""
    if not recording(index) and not is_mapped(index):
        check_bounds(f"{name}: index", array_of(index), groups, "groups")


def _by_index(name: str, index: Tensor, groups: int) -> _graph.Graph | Ends:
    """Return the graph of entries from one unused source node to their groups."""
    if recording(index):
        return Ends(torch.zeros_like(index), index, 1, groups)

    held = on_host(index)

    def pack() -> _graph.Graph:
        try:
            return _graph._of_groups(held.numpy(), groups)
        except IndexError as error:
            raise IndexError(f"{name}: index: {error}") from None

    return remembered([held], ("groups", groups), pack, lambda graph: [graph._dst])


def _by_offsets(ptr: Tensor, count: int) -> _graph.Graph | Ends:
    groups = ptr.shape[0] - 1
    if recording(ptr):
        index = rows_of(ptr, count)
        return Ends(torch.zeros_like(index), index, 1, groups)

    held = on_host(ptr)

    def pack() -> _graph.Graph:
        return _graph._of_groups(rows_of(held, count).numpy(), groups)

    return remembered([held], "offsets", pack)
