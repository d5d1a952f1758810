"""Cache of results computed from index tensors, valid while these live and are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..._call.indices import Indices

Made = TypeVar("Made")
_MOST = 64
_found: dict[Hashable, _Found] = {}
"""Ordered by last use, oldest first. Threads share it: each step is one atomic dict operation."""


class _Found(NamedTuple):
    storages: list[StorageWeakRef]
    numbers: Sequence[Indices]
    made: Any


def remembered(
    tensors: Sequence[Tensor],
    what: Hashable,
    make: Callable[[], Made],
    held: Callable[[Made], Sequence[Indices]] | None = None,
) -> Made:
    """Return the cached result of `make` for these tensors of integers.

    The result is recomputed if elements have changed: writes to memory that tensors share with
    other libraries leave no version. `make` must not keep the tensors. `held` returns the arrays of
    the result that hold the same elements, so that no further copy is needed for the comparison.
    """
    places = [
        (t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride(), t.dtype)
        for t in tensors
    ]
    key = *places, what
    found = _found.get(key)
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        # plain tensors, under any transformation or mode
        arrays = [t.numpy() for t in tensors]
        if found is None or not all(map(np.array_equal, arrays, found.numbers)):
            storages = [StorageWeakRef(t.untyped_storage()) for t in tensors]
            made = make()
            numbers = [*map(_copy, arrays)] if held is None else held(made)
            found = _Found(storages, numbers, made)
            _forget()
    _found.pop(key, None)
    _found[key] = found
    return found.made  # type: ignore[no-any-return]


def _copy(array: Indices) -> Indices:
    """Copy an index, as int32 if its elements fit."""
    small = array.astype(np.int32)
    return small if np.array_equal(small, array) else array.copy()


def _forget() -> None:
    """Evict results of freed tensors, and the oldest beyond the capacity."""
    for key in list(_found):
        found = _found.get(key)
        if found is not None and any(s.expired() for s in found.storages):
            _found.pop(key, None)
    for key in list(_found)[: 1 - _MOST]:
        _found.pop(key, None)
