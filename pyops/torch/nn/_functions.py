"""Softmax and reductions over groups of rows, as PyTorch Geometric calls them."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import graph as _graph
from ... import torch as _ops
from .._call import DTYPES
from .._graph import Ends
from ._edge_index import check_offsets, rows_of, tracing
from ._remember import remembered

_SUMS = {"sum": "sum", "add": "sum", "mean": "mean"}
_EXTREMES = {"max": "amax", "amax": "amax", "min": "amin", "amin": "amin"}
_OTHERS = "mul", "any"


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
        Where each group begins, and where the last one ends; wins over `index`.
    num_nodes : int, optional
        Number of groups; one more than the largest index if not given.
    dim : int
        The dimension of the groups.

    Returns
    -------
    tensor of the shape of `src`
    """
    name = "pyops.torch.nn.softmax"
    rows = src.movedim(dim, 0)
    count = rows.shape[0]
    if ptr is not None:
        graph = _by_offsets(name, ptr, count)
    elif index is not None:
        graph = _by_index(name, index, count, _groups(index, num_nodes))
    else:
        raise NotImplementedError(f"{name}: index: expected one, or ptr")
    if not src.numel():
        return src.clone()
    return _ops.segment_softmax(graph, rows.reshape(count, -1)).reshape(rows.shape).movedim(0, dim)


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
    if index.dim() != 1:
        raise ValueError(f"{name}: index: expected one dimension, got {index.dim()}")
    if not -src.dim() <= dim < src.dim():
        raise ValueError(f"{name}: dim: expected one of {src.dim()} dimensions, got {dim}")
    if reduce not in (*_SUMS, *_EXTREMES, *_OTHERS):
        raise ValueError(
            f"{name}: reduce: expected one of {', '.join((*_SUMS, *_EXTREMES, *_OTHERS))}, "
            f"got {reduce!r}"
        )
    groups = _groups(index, dim_size)
    rows = src.movedim(dim, 0)
    if _by_torch(src, reduce):
        return _reduced(rows, index.long(), groups, reduce).movedim(0, dim)
    graph = _by_index(name, index, rows.shape[0], groups)
    return _aggregated(graph, rows, groups, reduce).movedim(0, dim)


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
    """Reduce the rows of each stretch; stretches without rows get 0.

    Parameters
    ----------
    src : tensor, shape (rows, ...)
    ptr : tensor of integers, shape (stretches + 1,)
        Where each stretch begins, and where the last one ends.
    reduce : {"sum", "mean", "max", "min"}
        The gradient of a maximum or minimum is shared by all rows that attain it.

    Returns
    -------
    tensor, shape (stretches, ...)
    """
    name = "pyops.torch.nn.segment"
    if reduce not in (*_SUMS, *_EXTREMES):
        expected = ", ".join((*_SUMS, *_EXTREMES))
        raise ValueError(f"{name}: reduce: expected one of {expected}, got {reduce!r}")
    graph, groups = _by_offsets(name, ptr, src.shape[0]), ptr.shape[0] - 1
    if reduce in _EXTREMES and _by_torch(src, reduce):
        return _extreme_rows(src, ptr, reduce)
    if _by_torch(src, reduce):
        return _reduced(src, rows_of(ptr, len(src)).long(), groups, reduce)
    return _aggregated(graph, src, groups, reduce)


def _groups(index: Tensor, given: int | None) -> int:
    if given is not None:
        return given
    return int(index.max()) + 1 if index.numel() else 0


def _by_torch(src: Tensor, reduce: str) -> bool:
    """Whether torch has to do it: the operators share no gradient between equals."""
    if not src.numel() or src.dtype not in DTYPES or reduce in _OTHERS:
        return True
    return reduce in _EXTREMES and (src.requires_grad or tracing(src))


def _aggregated(graph: _graph.Graph | Ends, rows: Tensor, groups: int, reduce: str) -> Tensor:
    kind = _SUMS.get(reduce) or _EXTREMES[reduce][1:]
    found = _ops.aggregate(graph, None, rows.reshape(rows.shape[0], -1), reduce=kind)
    return found.reshape(groups, *rows.shape[1:])


def _reduced(rows: Tensor, index: Tensor, groups: int, reduce: str) -> Tensor:
    shape = groups, *rows.shape[1:]
    places = index.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
    if reduce in _EXTREMES:
        zeros = rows.new_zeros(shape)
        return zeros.scatter_reduce(0, places, rows, _EXTREMES[reduce], include_self=False)
    if reduce == "mul":
        return rows.new_ones(shape).scatter_reduce(0, places, rows, "prod")
    if reduce == "any":
        return rows.new_zeros(shape).scatter(0, places, rows)
    total = rows.new_zeros(shape).scatter_add(0, places, rows)
    if reduce != "mean":
        return total
    counts = rows.new_zeros(groups).scatter_add(0, index, rows.new_ones(len(index))).clamp(min=1)
    return total / counts.view(-1, *[1] * (rows.dim() - 1))


def _extreme_rows(src: Tensor, ptr: Tensor, reduce: str) -> Tensor:
    """Away from 0, of which `scatter_reduce` takes its own for an equal one."""
    groups, kind = ptr.shape[0] - 1, _EXTREMES[reduce]
    column = (-1, *[1] * (src.dim() - 1))
    limit = torch.finfo if src.dtype.is_floating_point else torch.iinfo
    first = limit(src.dtype).min if kind == "amax" else limit(src.dtype).max
    places = rows_of(ptr, len(src)).long().view(column).expand_as(src)
    start = src.new_full((groups, *src.shape[1:]), first)
    found = start.scatter_reduce(0, places, src, kind, include_self=False)
    return torch.where((ptr.diff() == 0).view(column), 0, found)


def _by_index(name: str, index: Tensor, count: int, groups: int) -> _graph.Graph | Ends:
    """Entries from one source that nobody reads into their groups."""
    if index.dim() != 1 or index.shape[0] != count:
        raise ValueError(f"{name}: index: expected shape ({count},), got {tuple(index.shape)}")
    if tracing(index):
        return Ends(torch.zeros_like(index), index, 1, groups)

    def pack() -> _graph.Graph:
        group = index.detach().numpy()
        try:
            return _graph._restore(0 * group, group, None, 1, groups, count)
        except IndexError as error:
            raise IndexError(f"{name}: index: {error}") from None

    return remembered([index], ("groups", groups), pack)


def _by_offsets(name: str, ptr: Tensor, count: int) -> _graph.Graph | Ends:
    if ptr.dim() != 1:
        raise ValueError(f"{name}: ptr: expected one dimension, got {ptr.dim()}")
    check_offsets(f"{name}: ptr", ptr, count)
    groups = ptr.shape[0] - 1
    if tracing(ptr):
        index = rows_of(ptr, count)
        return Ends(torch.zeros_like(index), index, 1, groups)

    def pack() -> _graph.Graph:
        index = rows_of(ptr, count).numpy()
        return _graph._restore(0 * index, index, None, 1, groups, count)

    return remembered([ptr], "offsets", pack)
