"""Checks and packing of index arrays, the only place where anything counts from 1."""

from __future__ import annotations

import operator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _kernels
from ._arrays import NOT_NUMBERS, kind_of, on_device
from ._threads import team

Indices: TypeAlias = npt.NDArray[np.integer[Any]]
LARGEST = 2**31 - 2
"""Most nodes of one kind: their ids are int32 in the kernels and count from 1."""
MOST_EDGES = 2**40
"""Most rows of edge arrays, far beyond any memory."""


def pack_rows(row: Indices, rows: int) -> tuple[Indices, Indices]:
    """The entries of each row, in their order, and where each row begins."""
    if rows == 1:
        order = np.arange(1, len(row) + 1, dtype=np.int64)
        offsets = np.array([1, len(row) + 1], np.int64)
    else:
        order = np.empty(len(row), np.int64)
        offsets = np.empty(rows + 1, np.int64)
        packing, held = _kernels.pyops_graph, (row, offsets, order)
        if row.dtype == np.int32:
            status = packing.pack_ends(rows, len(row), team(), *held)
        else:
            status = packing.pack_rows(rows, len(row), *held)
        if status:
            raise MemoryError("Graph: not enough memory to pack the entries")
    offsets.flags.writeable = order.flags.writeable = False
    return offsets, order


def take_ends(order: Indices, ends: Indices, size: int) -> Indices:
    """The ends, one of so many nodes each, of entries in their order along the rows, from 1."""
    if size == 1:
        nodes = np.ones(len(ends), np.int32)
    else:
        nodes = np.empty(len(ends), np.int32)
        _kernels.pyops_graph.take_ends(len(ends), team(), order, ends, nodes)
    nodes.flags.writeable = False
    return nodes


def check_indices(label: str, values: npt.ArrayLike) -> Indices:
    """A copy, which nobody changes between the checks and the use of it."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{label}: expected a plain array, got a MaskedArray; its mask would be lost"
        )
    if on_device(values):
        from .cuda._device import platform

        values = platform(label.partition(":")[0]).to_host(values)
    try:
        array = np.array(values)
        if isinstance(values, (list, tuple)) and not _FLAGS.isdisjoint(map(type, values)):
            raise _NoIntegerError("bool")  # which NumPy takes for numbers among integers
        if array.dtype == object and not isinstance(values, np.ndarray):
            integers = [_integer(value) for value in array.flat]
            array = np.array(integers, np.int64).reshape(array.shape)
    except OverflowError:
        raise OverflowError(f"{label}: expected indices that fit int64, got larger ones") from None
    except (TypeError, ValueError) as error:
        device = str(getattr(values, "device", "cpu"))
        got = type(values).__name__ + ("" if device == "cpu" else f" on {device}")
        if isinstance(error, _NoIntegerError) and array.ndim:
            got += f" of {error}"
        raise TypeError(f"{label}: expected int32 or int64, got {got}") from None
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind != "i" or array.dtype.itemsize not in (4, 8):
        raise TypeError(f"{label}: expected int32 or int64, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{label}: expected one dimension, got shape {array.shape}")
    return array


_FLAGS = {bool, np.bool_}


class _NoIntegerError(TypeError):
    """An element that NumPy would truncate; its text is the type."""


def _integer(value: Any) -> int:
    """An element of an array of objects, if it is an integer as Python understands it."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise _NoIntegerError(kind_of(value))
    return operator.index(value)


def check_offsets(label: str, offsets: Indices, length: int) -> None:
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != length:
        ends = "none" if len(offsets) == 0 else f"{offsets[0]} and {offsets[-1]}"
        raise ValueError(
            f"{label}: expected the first to be 0 and the last to be "
            f"len(indices)={length}, got {ends}"
        )
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        where = int(np.argmax(falls))
        raise ValueError(
            f"{label}: expected no decrease, got "
            f"{offsets[where]} before {offsets[where + 1]} at {where + 1}"
        )


def check_count(label: str, value: Any, largest: int = LARGEST) -> int:
    if isinstance(value, NOT_NUMBERS) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{label}: expected an integer, got {value!r}")
    if value < 0:
        raise ValueError(f"{label}: expected at least 0, got {value}")
    if value > largest:
        raise OverflowError(f"{label}: expected at most {largest}, got {value}")
    return int(value)


def check_bounds(label: str, indices: Indices, size: int, size_name: str, least: int = 0) -> None:
    if indices.dtype.kind != "i":
        raise TypeError(f"{label}: expected int32 or int64, got {indices.dtype}")
    if len(indices) and not (indices.min() >= least and indices.max() < size):
        wrong = (indices < least) | (indices >= size)
        where = int(np.argmax(wrong))
        raise IndexError(
            f"{label}: expected indices from {least} to {size_name}-1={size - 1}, "
            f"got {indices[where]} at {where}"
        )


def check_turned(
    label: str, reverse: Indices, src: Indices, dst: Indices, ids: Indices | None
) -> None:
    """Whether every edge that has a reverse is the reverse of that, between the same nodes."""
    edges = np.flatnonzero(reverse >= 0)
    back = reverse[reverse[edges]]
    wrong = back != edges
    if wrong.any():
        edge = edges[np.argmax(wrong)]
        raise ValueError(
            f"{label}: expected the reverse of an edge to have that edge as its reverse, got "
            f"{reverse[edge]} for {edge} and {reverse[reverse[edge]]} for {reverse[edge]}"
        )
    if ids is None:
        ids = np.arange(len(src))
    entries = np.flatnonzero(reverse[ids] >= 0)
    src, dst, ids = src[entries], dst[entries], ids[entries]
    ends = [np.stack([ids, src, dst]), np.stack([reverse[ids], dst, src])]
    here, turned = (pairs[:, np.lexsort(pairs[::-1])] for pairs in ends)
    wrong = (here != turned).any(0)
    if wrong.any():
        edge = min(here[0, np.argmax(wrong)], turned[0, np.argmax(wrong)])
        raise ValueError(
            f"{label}: expected the reverse of an edge to run from its destination to its source, "
            f"got {reverse[edge]} for {edge}, which does not"
        )


def frozen(array: Indices, dtype: type[np.integer[Any]]) -> Indices:
    """A contiguous copy that cannot be made writeable; the array itself where it is one."""
    if isinstance(array.base, bytes) and array.dtype == dtype and array.flags.c_contiguous:
        return array
    return np.frombuffer(np.ascontiguousarray(array, dtype).tobytes(), dtype)
