"""Cache of results computed from index tensors, valid while these live and are unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ...._call.indices import Indices

Result = TypeVar("Result")
_MOST = 64
_entries: dict[Hashable, _Entry] = {}
"""Ordered by last use, oldest first. Threads share it: each step is one atomic dict operation."""


class _Entry(NamedTuple):
    storages: list[StorageWeakRef]
    elements: Sequence[Indices]
    result: Any


def cached(
    tensors: Sequence[Tensor],
    what: Hashable,
    make: Callable[[], Result],
    held: Callable[[Result], Sequence[Indices]] | None = None,
) -> Result:
    """Return the cached result of `make` for these tensors of integers.

    The result is recomputed if elements have changed: writes to memory that tensors share with
    other libraries leave no version. `make` must not keep the tensors. `held` returns the arrays of
    the result that hold the same elements, so that no further copy is needed for the comparison.
    """
    views = [
        (t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride(), t.dtype)
        for t in tensors
    ]
    key = *views, what
    found = _entries.get(key)
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        # plain tensors, under any transformation or mode
        arrays = [t.numpy() for t in tensors]
        if found is None or not all(map(np.array_equal, arrays, found.elements)):
            storages = [StorageWeakRef(t.untyped_storage()) for t in tensors]
            made = make()
            elements = [*map(_copy, arrays)] if held is None else held(made)
            found = _Entry(storages, elements, made)
            _evict()
    _entries.pop(key, None)
    _entries[key] = found
    result: Result = found.result
    return result


def _copy(array: Indices) -> Indices:
    """Copy an index, as int32 if its elements fit."""
    small = array.astype(np.int32)
    return small if np.array_equal(small, array) else array.copy()


def _evict() -> None:
    """Evict results of freed tensors, and the oldest beyond the capacity."""
    for key in list(_entries):
        found = _entries.get(key)
        if found is not None and any(s.expired() for s in found.storages):
            _entries.pop(key, None)
    for key in list(_entries)[: 1 - _MOST]:
        _entries.pop(key, None)
