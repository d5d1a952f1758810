"""Checks of single arrays; a kernel receives only arrays of a supported dtype and layout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import new_array

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .types import Array, Stored

VARIANTS = {"f": "r4", "d": "r8"}
NOT_NUMBERS = bool, np.bool_, np.timedelta64
"""Subclasses of numbers that are not accepted as numbers."""
_CUDA = 2, 13
"""DLPack device types of CUDA memory and of CUDA managed memory."""


def check_array(
    label: str, array: object, types: Collection[str] = VARIANTS, *, on_host: bool = False
) -> Array:
    """Return the argument if it is a real floating-point array of a supported precision.

    If `on_host` is set, no front end has the function for arrays of other libraries.
    """
    if not isinstance(array, np.ndarray):
        library = type(array).__module__.partition(".")[0].removesuffix("lib")
        hint = f"; pyops.{library} takes these" if library in ("jax", "torch") else ""
        if on_host and hint:
            own = "tensor.detach().numpy()" if library == "torch" else "numpy.asarray(...)"
            hint = f"; pass {own}"
        raise TypeError(f"{label}: expected a NumPy array, got {kind_of(array)}{hint}")
    check_plain(label, array)
    if array.dtype.char not in types:
        raise TypeError(f"{label}: expected float32 or float64, got {array.dtype}")
    return array


def check_plain(label: str, array: Array) -> None:
    """Refuse subclasses of NumPy's arrays."""
    if type(array) is not np.ndarray and not isinstance(array, np.memmap):
        raise TypeError(
            f"{label}: expected a plain NumPy array, got {kind_of(array)}; its special behaviour "
            "would be lost, pass numpy.asarray(...) if that is meant"
        )


def on_device(value: object) -> bool:
    """Return whether a value is an array or a graph on a CUDA device."""
    if type(value) is np.ndarray:
        return False
    try:
        return int(value.__dlpack_device__()[0]) in _CUDA  # type: ignore[attr-defined]
    except Exception:  # arbitrary types may raise anything
        return "__cuda_array_interface__" in dir(type(value)) and not hasattr(value, "__dlpack__")


def check_size(label: str, value: object, least: int = 1, most: int = 2**31 - 1) -> int:
    """Return the argument if it is an integer within bounds, by default those of an axis."""
    if isinstance(value, NOT_NUMBERS) or not isinstance(value, (int, np.integer)):
        kind = "a positive integer" if least else "an integer"
        raise TypeError(f"{label}: expected {kind}, got {value!r}")
    if not least <= value <= most:
        limit = "2**31 - 1" if most == 2**31 - 1 else most
        raise ValueError(f"{label}: expected an integer from {least} to {limit}, got {value!r}")
    return int(value)


def check_number(label: str, value: object) -> float:
    """Return the argument if it is a finite real number."""
    if isinstance(value, NOT_NUMBERS) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise TypeError(f"{label}: expected a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{label}: expected a finite number, got {value!r}")
    return number


def check_output(
    label: str, array: object, shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> Array:
    """Return an array for `out` if it is writeable and has the given shape and dtype."""
    out = check_array(label, array)
    if out.dtype.char != dtype.char:
        raise TypeError(f"{label}: expected {dtype} like the inputs, got {out.dtype}")
    return check_target(label, out, shape)


def check_target(label: str, out: Array, shape: tuple[int, ...]) -> Array:
    """Return an array for `out` if it is plain and writeable and has the given shape."""
    check_plain(label, out)
    if out.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {out.shape}")
    if not out.flags.writeable:
        raise ValueError(f"{label}: expected a writeable array, got a read-only one")
    span = out.itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(out.strides, out.shape, strict=True)):
        if length > 1 and stride < span and out.size:
            raise ValueError(f"{label}: expected distinct elements, got strides {out.strides}")
        span += stride * (length - 1)
    return out


def check_place(label: str, array: Any, shape: tuple[int, ...]) -> None:
    """Refuse a device array that cannot take a result of this shape."""
    if array.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {array.shape}")
    if any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)):
        raise ValueError(f"{label}: expected distinct elements, got strides {array.strides}")


def plain(array: Array) -> Array:
    """Return the array in C order, aligned and in native byte order: itself or a copy."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", subok=False)


def check_outputs(
    caller: str,
    labels: Mapping[str, str],
    shapes: Sequence[tuple[int, ...] | None],
    dtype: Stored,
    out: Sequence[object] | None,
    accumulate: bool,
    check: Callable[..., object] = check_output,
    overlap: Callable[[object, object], bool] = np.shares_memory,
) -> None:
    """Refuse `out` arrays that cannot take the outputs; None in `shapes` is an unwanted output."""
    if not isinstance(accumulate, (bool, np.bool_)):
        raise TypeError(f"{caller}: accumulate: expected True or False, got {accumulate!r}")
    if out is None:
        if accumulate:
            raise ValueError(f"{caller}: accumulate: expected arrays in out to add to, got none")
        return
    if not isinstance(out, (tuple, list)):
        raise TypeError(f"{caller}: out: expected a tuple of arrays or None, got {kind_of(out)}")
    if len(out) != len(labels):
        raise ValueError(
            f"{caller}: out: expected one entry for each of {', '.join(labels)}, got {len(out)}"
        )
    for i, (label, array, shape) in enumerate(zip(labels.values(), out, shapes, strict=True)):
        if array is None:
            continue
        if shape is None:
            raise ValueError(f"{caller}: {label}: expected None, its gradient is not wanted")
        check(f"{caller}: {label}", array, shape, dtype)
        for other in out[:i]:
            if other is not None and overlap(array, other):
                raise ValueError(
                    f"{caller}: {label}: expected memory of its own, got some of another entry"
                )


def buffers_for(
    out: Sequence[Array | None],
    shapes: Sequence[tuple[int, ...] | None],
    dtype: Stored,
    inputs: Sequence[Array],
    accumulate: bool,
) -> list[Array | None]:
    """Return the arrays that a kernel writes: those of `out`, copies of them, or new ones."""
    buffers: list[Array | None] = []
    for given, shape in zip(out, shapes, strict=True):
        buffer = None
        if given is not None:
            buffer = plain(given)
            if any(np.may_share_memory(buffer, array) for array in inputs):
                buffer = buffer.copy()
        elif shape is not None:
            buffer = np.zeros(shape, dtype) if accumulate else new_array(shape, dtype)
        buffers.append(buffer)
    return buffers


def hand_over(
    buffers: Sequence[Array | None], out: Sequence[Array | None]
) -> tuple[Array | None, ...]:
    """Copy the outputs to the arrays of `out`, if given, and return them."""
    for buffer, given in zip(buffers, out, strict=True):
        if given is not None and given is not buffer:
            given[...] = buffer
    return tuple(b if g is None else g for b, g in zip(buffers, out, strict=True))


def kind_of(value: object) -> str:
    """Return the type of a value as error messages name it."""
    kind = type(value)
    if value is None:
        return "None"
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
