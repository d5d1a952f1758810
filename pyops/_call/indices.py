"""Checks and packing of index arrays: the only conversion between 0-based and 1-based indices."""

from __future__ import annotations

import contextlib
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _kernels
from .arrays import NOT_NUMBERS, kind_of
from .backends import find_device
from .threads import team

if TYPE_CHECKING:
    from .._schema import Indexed

Indices: TypeAlias = npt.NDArray[np.integer]
LARGEST = 2**31 - 2
"""Largest number of nodes of one kind: kernels have 1-based int32 node indices."""
MOST_EDGES = 2**40
"""Largest number of rows of edge arrays, far beyond any memory."""


def pack_rows(row: Indices, rows: int) -> tuple[Indices, Indices]:
    """Return the entries of each row, in their order, and the row offsets (counting sort)."""
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
    """Gather the node at one end of each entry in row order, 1-based, of `size` nodes."""
    if size == 1:
        nodes = np.ones(len(ends), np.int32)
    else:
        nodes = np.empty(len(ends), np.int32)
        _kernels.pyops_graph.take_ends(len(ends), team(), order, ends, nodes)
    nodes.flags.writeable = False
    return nodes


def check_indices(label: str, values: object) -> Indices:
    """Return a copy of index values, which the caller cannot change after the checks."""
    array = check_integers(label, values)
    if array.ndim != 1:
        raise ValueError(f"{label}: expected one dimension, got shape {array.shape}")
    return array


def check_integers(label: str, values: object) -> Indices:
    """Return a copy of an integer array of any shape, in native byte order."""
    device = find_device(values)
    if device is not None:
        values = device.to_host(label.partition(":")[0], values)
    masked = isinstance(values, np.ma.MaskedArray)
    try:
        array = np.array(values)
        if not masked and not _is_array(values):
            _look_at_elements(values, array.ndim)
        if array.dtype == object and not isinstance(values, np.ndarray):
            array = _from_objects(array)
        elif array.dtype.kind in "fu" and not _is_array(values):
            with contextlib.suppress(TypeError):
                _from_objects(np.array(values, object))
    except MemoryError:
        raise
    except OverflowError:
        raise OverflowError(f"{label}: expected indices that fit int64, got larger ones") from None
    except _MaskedElementError:
        masked = True
    except Exception as error:  # arbitrary types may raise anything
        raise TypeError(f"{label}: expected int32 or int64, got {_got(values, error)}") from None
    if masked:
        raise TypeError(
            f"{label}: expected a plain array, got a MaskedArray; its mask would be lost"
        )
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind != "i" or array.dtype.itemsize not in (4, 8):
        raise TypeError(f"{label}: expected int32 or int64, got {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class _NoIntegerError(TypeError):
    """Raised for an element that NumPy would truncate; its text is the type."""


class _MaskedElementError(TypeError):
    """Raised for a masked element."""


def _got(values: Any, error: Exception) -> str:
    """Describe a value given in place of indices, and why it cannot be read."""
    device, layout = (str(getattr(values, name, "")) for name in ("device", "layout"))
    got = kind_of(values) if values is None else type(values).__name__
    if isinstance(error, _NoIntegerError) and np.ndim(values):
        return f"{got} of {error}"
    if device not in ("", "cpu"):
        return f"{got} on {device}"
    if layout not in ("", "torch.strided"):
        return f"{got} with layout {layout}"
    if isinstance(error, ValueError) and "inhomogeneous" in str(error):
        return f"{got} with rows of different lengths"
    if isinstance(error, (TypeError, ValueError)):
        return got
    return f"{got}: {error}"


def _is_array(values: Any) -> bool:
    """Return whether NumPy reads the values as an array, not as a sequence of elements."""
    if any(hasattr(values, f"__{name}__") for name in _PROTOCOLS):
        return True
    try:
        memoryview(values)
    except TypeError:
        return False
    return True


_PROTOCOLS = "array", "array_interface", "array_struct"


def _look_at_elements(values: Any, ndim: int) -> None:
    """Refuse booleans and masked elements, which NumPy would convert to integers."""
    if isinstance(values, np.ma.MaskedArray):
        raise _MaskedElementError
    if ndim == 0 or _is_array(values):
        if np.asarray(values).dtype.kind == "b":
            raise _NoIntegerError("bool")
        return
    kinds = set(map(type, values))
    if not kinds.isdisjoint(_FLAGS):
        raise _NoIntegerError("bool")
    if not all(issubclass(kind, _SCALARS) for kind in kinds):
        for element in values:
            _look_at_elements(element, ndim - 1)


_FLAGS = {bool, np.bool_}
_SCALARS = int, float, complex, str, np.number


def _from_objects(array: npt.NDArray[np.object_]) -> Indices:
    return np.array([_integer(value) for value in array.flat], np.int64).reshape(array.shape)


def _integer(value: object) -> int:
    """Return an element of an object array if it is an integer by Python's rules."""
    if not isinstance(value, (int, np.integer)) and hasattr(value, "__array__"):
        _look_at_elements(value, 0)
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


def check_count(label: str, value: object, largest: int = LARGEST) -> int:
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


def check_wanted(label: str, option: Indexed, rows: object, wanted: bool) -> None:
    """Refuse row numbers unless the option has the choice that uses them, and vice versa."""
    if wanted and rows is None:
        raise TypeError(
            f"{label}: expected row numbers with {option.option}={option.choice!r}, got None"
        )
    if not wanted and rows is not None:
        raise ValueError(
            f"{label}: expected None without {option.option}={option.choice!r}, "
            f"got {type(rows).__name__}"
        )


def check_rows(
    label: str,
    option: Indexed,
    rows: object,
    length: int,
    ends: tuple[Indices, Indices, Indices | None] | None,
    bound: tuple[int, str] | None = None,
) -> Indices:
    """Return the checked row numbers of an option, -1 for none.

    If the end nodes of the edges are not given, any pairing is accepted. `bound` is the number of
    rows and its name, by default `length`.
    """
    checked = check_indices(label, rows)
    check_length(label, option, len(checked), length)
    check_bounds(label, checked, *(bound or (length, option.length)), least=-1)
    if option.reverses and ends is not None:
        check_turned(label, checked, *ends)
    return checked


def check_length(label: str, option: Indexed, found: int, length: int) -> None:
    if found != length:
        raise ValueError(f"{label}: expected {option.length}={length} numbers, got {found}")


def check_turned(
    label: str, reverse: Indices, src: Indices, dst: Indices, ids: Indices | None
) -> None:
    """Check that each edge with a reverse is the reverse of it, between the same nodes."""
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
    here, back = (pairs[:, np.lexsort(pairs[::-1])] for pairs in ends)
    wrong = (here != back).any(0)
    if wrong.any():
        edge = min(here[0, np.argmax(wrong)], back[0, np.argmax(wrong)])
        raise ValueError(
            f"{label}: expected the reverse of an edge to run from its destination to its source, "
            f"got {reverse[edge]} for {edge}, which does not"
        )


def frozen(array: Indices, dtype: type[np.integer]) -> Indices:
    """Return a contiguous read-only copy; the array itself if it is one."""
    if isinstance(array.base, bytes) and array.dtype == dtype and array.flags.c_contiguous:
        return array
    return np.frombuffer(np.ascontiguousarray(array, dtype).tobytes(), dtype)
