"""What was made of tensors, remembered for as long as they live."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

Made = TypeVar("Made")
_MOST = 64
_found: OrderedDict[Hashable, tuple[list[StorageWeakRef], object]] = OrderedDict()


def remembered(tensors: Sequence[Tensor], what: Hashable, make: Callable[[], Made]) -> Made:
    """What was made of these tensors, for as long as they live and nobody changes them.

    `make` must not keep the tensors. Those made in inference mode do not say whether they were
    changed, so nothing is remembered of them.
    """
    if any(t.is_inference() for t in tensors):
        return _made(make)
    places = [
        (t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride(), t.dtype, t._version)
        for t in tensors
    ]
    key = *places, what
    if key in _found:
        _found.move_to_end(key)
        return _found[key][1]  # type: ignore[return-value]
    for old in [k for k, (held, _) in _found.items() if any(h.expired() for h in held)]:
        _found.pop(old, None)
    made = _made(make)
    _found[key] = [StorageWeakRef(t.untyped_storage()) for t in tensors], made
    while len(_found) > _MOST:
        _found.popitem(last=False)
    return made


def _made(make: Callable[[], Made]) -> Made:
    """Made of plain tensors, whatever transformation or mode is under way."""
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        return make()
