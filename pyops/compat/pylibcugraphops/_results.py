"""Results, for the arrays of the caller that take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import Array, on_device
from ..._indices import Indices
from ._queue import check_output


def write(caller: str, **outputs: tuple[Any, Array | Indices | None]) -> None:
    """Results to their arrays, of which all are checked before any is written to."""
    names = list(outputs)
    for i, (name, (target, result)) in enumerate(outputs.items()):
        assert result is not None
        check = check_output if result.dtype.kind == "f" else _check_indices
        check(f"{caller}: {name}", target, result.shape, result.dtype)
        for other in names[:i]:
            if _share(target, outputs[other][0]):
                raise ValueError(
                    f"{caller}: {name}: expected memory of its own, got some of {other}"
                )
    for target, result in outputs.values():
        target[...] = result


def _check_indices(label: str, target: Any, shape: tuple[int, ...], _: Any) -> None:
    """An array given to take indices of either kind."""
    if not isinstance(target, np.ndarray) or target.dtype not in (np.int32, np.int64):
        raise TypeError(f"{label}: expected an array of int32 or int64, got {type(target)}")
    if target.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {target.shape}")
    if not target.flags.writeable:
        raise ValueError(f"{label}: expected a writeable array, got a read-only one")


def _share(one: Any, other: Any) -> bool:
    return not on_device(one) and np.shares_memory(one, other)
