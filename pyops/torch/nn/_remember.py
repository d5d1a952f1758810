"""What was made of tensors, remembered for as long as they live and hold the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..._indices import Indices

Made = TypeVar("Made")
_MOST = 64
_found: dict[Hashable, _Found] = {}
"""The last one used is the last. Threads share it: each step is one operation of the dict."""


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
    """What was made of these tensors of integers, for as long as they live.

    It is made anew if they hold other numbers than they did: memory that tensors share with
    others is written to without a trace. `make` must not keep the tensors; `held` says where it
    left the same numbers, so that they need not be copied once more.
    """
    places = [
        (t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride(), t.dtype)
        for t in tensors
    ]
    key = *places, what
    found = _found.get(key)
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        # plain tensors, whatever transformation or mode is under way
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
    """The same numbers, in half the memory if they fit."""
    small = array.astype(np.int32)
    return small if np.array_equal(small, array) else array.copy()


def _forget() -> None:
    """Let go what was made of tensors that are gone, and the oldest of too many."""
    for key in list(_found):
        found = _found.get(key)
        if found is not None and any(s.expired() for s in found.storages):
            _found.pop(key, None)
    for key in list(_found)[: 1 - _MOST]:
        _found.pop(key, None)
