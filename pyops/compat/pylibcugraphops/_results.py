"""Copies of results to the caller's output arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._queue import check_numbers, check_output, current_device

if TYPE_CHECKING:
    from ..._call.indices import Indices
    from ..._call.types import Array


def write(caller: str, **outputs: tuple[object, Array | Indices | None]) -> None:
    """Copy results to their arrays; all are checked before any is written."""
    checked: dict[str, tuple[Array | Indices, Array | Indices]] = {}
    for name, (given, result) in outputs.items():
        assert result is not None
        label = f"{caller}: {name}"
        target: Array | Indices
        if result.dtype.kind == "f":
            target = check_output(label, given, result.shape, result.dtype)
        else:
            target = _check_indices(label, given, result.shape)
        for other, (another, _) in checked.items():
            if np.shares_memory(_in_memory(target), _in_memory(another)):
                raise ValueError(f"{label}: expected memory of its own, got some of {other}")
        checked[name] = target, result
    for target, result in checked.values():
        target[...] = result.astype(target.dtype, copy=False)


def _check_indices(label: str, target: object, shape: tuple[int, ...]) -> Indices:
    """Return an array for index results of either integer type."""
    if current_device() is not None:
        return check_numbers(label, target, shape)
    if not isinstance(target, np.ndarray) or target.dtype not in (np.int32, np.int64):
        raise TypeError(f"{label}: expected an array of int32 or int64, got {type(target)}")
    if target.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {target.shape}")
    if not target.flags.writeable:
        raise ValueError(f"{label}: expected a writeable array, got a read-only one")
    return target


def _in_memory(array: Array | Indices) -> Array | Indices:
    """Return an array that is only compared by its memory."""
    device = current_device()
    if device is None:
        return array
    adopted, _ = device.platform.adopt(array)
    return np.asarray(_AddressRange(array, device.platform.address(adopted)))


class _AddressRange:
    """Address range of a device array, as NumPy's array interface."""

    def __init__(self, array: Array | Indices, address: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
        }
