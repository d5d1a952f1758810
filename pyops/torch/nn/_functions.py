"""Softmax and reductions over groups of rows, as PyTorch Geometric calls them."""

from __future__ import annotations

import torch
from torch import Tensor

from .._call import DTYPES, HALVES, is_exporting, is_integer, is_jit_tracing, is_tracing
from .._host import is_mapped, on_host
from .._phase import tracks_derivatives
from ._edges.edge_index import check_device, check_offsets, integers, rows_of
from ._reductions import (
    EXTREMES,
    REDUCTIONS,
    SUMS,
    aggregated,
    by_index,
    by_offsets,
    is_by_torch,
    reduced_by_torch,
    rows_first,
    softmax_by_operator,
    softmax_by_torch,
)


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
    if src.dtype in HALVES:
        return softmax(src.float(), index, ptr, num_nodes, dim).to(src.dtype)
    count = src.shape[dim]
    if ptr is not None:
        given = check_offsets(f"{name}: ptr", ptr, count)
        groups = given.shape[0] - 1
    elif index is not None:
        given = _checked_index(name, index, count)
        groups = groups_of(f"{name}: num_nodes", given, num_nodes)
    else:
        raise NotImplementedError(f"{name}: index: expected one, or ptr")
    if not is_tracing(src) and not src.numel():
        return src.exp()  # as floating-point numbers
    if is_by_torch("segment_softmax", src, dim, given):
        owners = given if ptr is None else rows_of(given, count)
        return softmax_by_torch(name, src, owners.long(), dim, groups)
    graph = by_index(name, given, groups) if ptr is None else by_offsets(given, count)
    rows = rows_first(src, dim)
    found = softmax_by_operator(graph, rows)
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
    if src.dtype in HALVES and reduce in SUMS:  # torch would round each partial sum
        return scatter(src.float(), index, dim, dim_size, reduce).to(src.dtype)
    count = src.shape[dim]
    index = _checked_index(name, index, count)
    groups = groups_of(f"{name}: dim_size", index, dim_size)
    by_operator = reduce in SUMS or reduce in EXTREMES
    if not by_operator or is_by_torch("aggregate", src, dim, index):
        return reduced_by_torch(name, src, index.long(), dim, groups, reduce)
    found = aggregated(by_index(name, index, groups), rows_first(src, dim), groups, reduce)
    return found.movedim(0, dim).contiguous()


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
    """Reduce the rows of each segment; segments without rows get 0.

    Parameters
    ----------
    src : tensor, shape (rows, ...)
    ptr : tensor of integers, shape (segments + 1,)
        Offsets of the segments, with the end of the last one.
    reduce : {"sum", "mean", "max", "min"}
        The gradient of a maximum or minimum is shared by all rows that attain it.

    Returns
    -------
    tensor, shape (segments, ...)
    """
    name = "pyops.torch.nn.segment"
    if reduce not in (*SUMS, *EXTREMES):
        expected = ", ".join((*SUMS, *EXTREMES))
        raise ValueError(f"{name}: reduce: expected one of {expected}, got {reduce!r}")
    count = src.shape[_dimension(name, src, 0)]
    if src.dtype in HALVES and reduce in SUMS:
        return segment(src.float(), ptr, reduce).to(src.dtype)
    ptr = check_offsets(f"{name}: ptr", ptr, count)
    groups = ptr.shape[0] - 1
    tracked = tracks_derivatives((src,))  # of which torch has first ones, wrong among ties
    if reduce in EXTREMES and src.is_floating_point() and not (is_exporting() or tracked):
        found = torch._segment_reduce(src, EXTREMES[reduce], offsets=ptr)
        empty = (ptr.diff() == 0).view(-1, *[1] * (src.dim() - 1))
        return torch.where(empty, 0, found)
    if not is_by_torch("aggregate", src, 0, ptr):
        return aggregated(by_offsets(ptr, count), src, groups, reduce)
    by_segments = reduce in SUMS and src.dtype in DTYPES
    if by_segments and not is_tracing(ptr) and not tracked:
        return torch._segment_reduce(src, SUMS[reduce], offsets=ptr, initial=0)
    operation = reduce if reduce in EXTREMES else "sum"
    total = reduced_by_torch(name, src, rows_of(ptr, count).long(), 0, groups, operation)
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
        if not is_jit_tracing() and given < 0:
            raise ValueError(f"{label}: expected at least 0, got {given}")
        return given
    if is_mapped(index):
        raise NotImplementedError(f"{label}: expected an integer where vmap maps over the index")
    if is_jit_tracing():
        groups: int = torch.ops.aten.add(
            torch.cat([index.long(), index.new_full((1,), -1)]).max(), 1
        )
        return groups
    if is_exporting():
        # a symbolic size, computed when the program runs
        largest: int = torch.sym_int(index.max().item())
        torch._check(largest >= 0)
        return largest + 1
    largest = int(on_host(index).max()) if index.numel() else -1
    if index.numel() and largest < 0 and not is_tracing(index):
        caller = label.partition(": ")[0]
        raise IndexError(f"{caller}: {name}: expected indices from 0 on, got {largest}")
    return largest + 1


def _dimension(name: str, src: Tensor, dim: int) -> int:
    """Check a dimension and return it as a nonnegative number."""
    if not isinstance(src, Tensor) or not src.is_cpu:
        check_device(f"{name}: src", src)
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
