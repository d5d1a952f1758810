"""Copies of results to the caller's output arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._call.arrays import Array
from ..._call.indices import Indices
from ._queue import check_numbers, check_output, there


def write(caller: str, **outputs: tuple[Any, Array | Indices | None]) -> None:
    """Copy results to their arrays; all are checked before any is written."""
    names = list(outputs)
    for i, (name, (target, result)) in enumerate(outputs.items()):
        assert result is not None
        check = check_output if result.dtype.kind == "f" else _check_indices
        check(f"{caller}: {name}", target, result.shape, result.dtype)
        for other in names[:i]:
            if np.shares_memory(_in_memory(target), _in_memory(outputs[other][0])):
                raise ValueError(
                    f"{caller}: {name}: expected memory of its own, got some of {other}"
                )
    for target, result in outputs.values():
        assert result is not None
        target[...] = result.astype(target.dtype, copy=False)


def _check_indices(label: str, target: Any, shape: tuple[int, ...], _: Any) -> None:
    """Check an array for index results of either integer type."""
    if there() is not None:
        check_numbers(label, target, shape)
        return
    if not isinstance(target, np.ndarray) or target.dtype not in (np.int32, np.int64):
        raise TypeError(f"{label}: expected an array of int32 or int64, got {type(target)}")
    if target.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {target.shape}")
    if not target.flags.writeable:
        raise ValueError(f"{label}: expected a writeable array, got a read-only one")


def _in_memory(array: Any) -> Any:
    """Return an array that is only compared by its memory."""
    where = there()
    return array if where is None else np.asarray(_Place(array, where.platform.address(array)))


class _Place:
    """Address range of a device array, as NumPy's array interface."""

    def __init__(self, array: Any, address: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
        }
