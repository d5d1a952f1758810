"""What is made of index arrays that calls take by themselves, kept for the calls that follow.

Those on a device are copied to the host and checked when a call first comes with them. They count
as the same as long as they have the same place in memory, the same shape and the same type, and
must not be written to after their first call; arrays in host memory are compared. The last few are
kept, with their memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ._queue import on_device, there

Made = TypeVar("Made")
MOST = 24
_kept: dict[Any, tuple[Any, Sequence[Any]]] = {}
_lock = threading.Lock()


def remembered(kind: str, arrays: Sequence[Any], make: Callable[[], Made]) -> Made:
    """What `make` makes of the arrays of a call on a device."""
    where, places = there(), [_place(array) for array in arrays]
    if where is None or None in places:
        return make()
    key = kind, *where, *places
    with _lock:
        found = _kept.pop(key, None)
        if found is not None:
            _kept[key] = found
    if found is None:
        # With the arrays, so that no others can take their place in memory.
        found = make(), arrays
        with _lock:
            _kept[key] = found
            while len(_kept) > MOST:
                del _kept[next(iter(_kept))]
    made: Made = found[0]
    return made


def on_host(indices: Any) -> Any:
    """Indices that can be checked: of those on a device a copy."""
    where = there()
    return where.platform.to_host(indices) if where and on_device(indices) else indices


def _place(array: Any) -> Any:
    """What tells an array from others, None for what is no array."""
    where = there()
    if where is not None and on_device(array):
        return where.platform.address(array), array.shape, array.strides, array.dtype.str
    if type(array) is not np.ndarray:
        return None
    return array.tobytes(), array.shape, array.dtype.str
