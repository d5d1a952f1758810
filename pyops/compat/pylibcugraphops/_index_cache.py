"""Cache of objects made from bare index arrays that calls take.

Device arrays are copied to the host and checked on their first use. They are identified by
address, shape and dtype, and must not be written to after that; arrays in host memory are compared.
The cache holds the most recent ones, and keeps their memory alive.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from ._queue import current_device, on_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._call.types import Values

Found = TypeVar("Found")
MOST = 24
_cache: dict[tuple[object, ...], Values] = {}
_lock = threading.Lock()


def cached(kind: str, arrays: Sequence[object], make: Callable[[], Found]) -> Found:
    """Return what `make` makes from the index arrays of a device call, cached."""
    device, keys = current_device(), [_key(array) for array in arrays]
    if device is None or None in keys:
        return make()
    key = kind, *device, *keys
    with _lock:
        entry = _cache.pop(key, None)
        if entry is not None:
            _cache[key] = entry
    if entry is None:
        # Keeps the arrays alive, so that no others can have their address.
        entry = {"found": make(), "arrays": arrays}
        with _lock:
            _cache[key] = entry
            while len(_cache) > MOST:
                del _cache[next(iter(_cache))]
    found: Found = entry["found"]
    return found


def on_host(indices: npt.ArrayLike) -> npt.ArrayLike:
    """Return indices that can be checked; those on a device are copied."""
    device = current_device()
    return device.platform.to_host(indices) if device and on_device(indices) else indices


def _key(array: object) -> tuple[object, ...] | None:
    """Return the cache key of an array, None for anything else."""
    device = current_device()
    if device is not None and on_device(array):
        held, _ = device.platform.adopt(array)
        return device.platform.address(held), held.shape, held.strides, held.dtype.str
    if type(array) is not np.ndarray:
        return None
    return array.tobytes(), array.shape, array.dtype.str
