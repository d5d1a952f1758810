"""Softmax and reductions over groups of rows, as PyTorch Geometric calls them."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import graph as _graph
from ... import torch as _ops
from .._call import DTYPES, exporting, jit_tracing, recording
from .._graph import Ends
from .._host import on_host
from ._edge_index import check_offsets, integers, placed, rows_of
from ._remember import remembered

_SUMS = {"sum": "sum", "add": "sum", "mean": "mean"}
_EXTREMES = {"max": "amax", "amax": "amax", "min": "amin", "amin": "amin"}
_OTHERS = "mul", "any"
_NARROW = {"softmax": 4, "sum": 8}
"""Columns below which torch is as fast, an index not having to be packed."""


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
    rows = _rows(name, src, dim)
    count = rows.shape[0]
    if ptr is None and index is None:
        raise NotImplementedError(f"{name}: index: expected one, or ptr")
    narrow = not exporting() and src.numel() < _NARROW["softmax"] * count
    if ptr is not None:
        check_offsets(f"{name}: ptr", ptr, count)
        groups = ptr.shape[0] - 1
        index = rows_of(ptr, count) if narrow else None
    else:
        assert index is not None
        _check_index(name, index, count)
        groups = groups_of(index, num_nodes)
    if not src.numel() and not recording(src):
        return src.clone()
    if index is not None and (narrow or src.dtype not in DTYPES):
        return _softmax(rows, index.long(), groups).movedim(0, dim)
    graph = _by_offsets(ptr, count) if index is None else _by_index(name, index, groups)
    return _ops.segment_softmax(graph, _columns(rows)).reshape(rows.shape).movedim(0, dim)


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
    rows = _rows(name, src, dim)
    if reduce not in (*_SUMS, *_EXTREMES, *_OTHERS):
        raise ValueError(
            f"{name}: reduce: expected one of {', '.join((*_SUMS, *_EXTREMES, *_OTHERS))}, "
            f"got {reduce!r}"
        )
    _check_index(name, index, rows.shape[0])
    groups = groups_of(index, dim_size)
    if _by_torch(rows, reduce):
        return _reduced(rows, index.long(), groups, reduce).movedim(0, dim)
    return _aggregated(_by_index(name, index, groups), rows, groups, reduce).movedim(0, dim)


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
    """Reduce the rows of each stretch; stretches without rows get 0.

    Parameters
    ----------
    src : tensor, shape (rows, ...)
    ptr : tensor of integers, shape (stretches + 1,)
        Where each stretch begins, and where the last one ends.
    reduce : {"sum", "mean", "max", "min"}
        A maximum or minimum is torch's: it is differentiable once.

    Returns
    -------
    tensor, shape (stretches, ...)
    """
    name = "pyops.torch.nn.segment"
    if reduce not in (*_SUMS, *_EXTREMES):
        expected = ", ".join((*_SUMS, *_EXTREMES))
        raise ValueError(f"{name}: reduce: expected one of {expected}, got {reduce!r}")
    count = _rows(name, src, 0).shape[0]
    check_offsets(f"{name}: ptr", ptr, count)
    groups = ptr.shape[0] - 1
    if reduce in _EXTREMES and not exporting():
        found = torch._segment_reduce(src, _EXTREMES[reduce], offsets=ptr)
        empty = (ptr.diff() == 0).view(-1, *[1] * (src.dim() - 1))
        return torch.where(empty, 0, found)
    if _by_torch(src, reduce):
        return _reduced(src, rows_of(ptr, count).long(), groups, reduce)
    return _aggregated(_by_offsets(ptr, count), src, groups, reduce)


def groups_of(index: Tensor, given: int | None) -> int:
    """The number of groups, one more than the largest index if it is not given."""
    if given is not None:
        return given
    if jit_tracing():
        groups: int = torch.cat([index.long(), index.new_full((1,), -1)]).max() + 1
        return groups
    if exporting():
        largest: int = index.max().item()  # a size that the program finds when it runs
        torch._check(largest >= 0)
        return largest + 1
    return int(on_host(index).max()) + 1 if index.numel() else 0


def _by_torch(rows: Tensor, reduce: str) -> bool:
    """Whether the operators have no such reduction, or have it no faster.

    They give the gradient of an extreme to the first of equals, which these share.
    """
    if rows.dtype not in DTYPES or reduce in _OTHERS:
        return True
    if exporting():
        return False
    if not rows.numel() or reduce not in _SUMS:
        return True
    return bool(rows.numel() < _NARROW["sum"] * rows.shape[0])


def _aggregated(graph: _graph.Graph | Ends, rows: Tensor, groups: int, reduce: str) -> Tensor:
    name = _SUMS.get(reduce) or _EXTREMES[reduce][1:]
    found = _ops.aggregate(graph, None, _columns(rows), reduce=name)
    return found.reshape(groups, *rows.shape[1:])


def _columns(rows: Tensor) -> Tensor:
    return rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)


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
    total = rows.new_zeros(shape)
    if rows.dim() == 1:  # the way back picks by an index, which is faster than to gather
        total = total.index_add(0, index, rows)
    else:
        total = total.scatter_add(0, places, rows)
    if reduce != "mean":
        return total
    counts = rows.new_zeros(groups).index_add(0, index, rows.new_ones(index.shape)).clamp(min=1)
    return total / counts.view(-1, *[1] * (rows.dim() - 1))


def _softmax(rows: Tensor, index: Tensor, groups: int) -> Tensor:
    tops = _reduced(rows.detach(), index, groups, "max")
    powers = (rows - tops.index_select(0, index)).exp()
    totals = _reduced(powers, index, groups, "sum")
    return powers / totals.index_select(0, index)


def _rows(name: str, src: object, dim: int) -> Tensor:
    """The elements, first of all dimensions the one of the groups."""
    found = placed(f"{name}: src", src)
    if not -found.dim() <= dim < found.dim():
        raise ValueError(f"{name}: dim: expected one of {found.dim()} dimensions, got {dim}")
    return found.movedim(dim, 0)


def _check_index(name: str, index: Tensor, count: int) -> None:
    if integers(f"{name}: index", index).shape[0] != count:
        raise ValueError(f"{name}: index: expected shape ({count},), got {tuple(index.shape)}")


def _by_index(name: str, index: Tensor, groups: int) -> _graph.Graph | Ends:
    """Entries from one source that nobody reads into their groups."""
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
