"""Numbers of tensors in host memory, where indices are checked and packed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_MOST_VIEWS = 16
_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Of tensors on a device: the versions and copies of them and of their views."""


def on_host(tensor: Tensor, within: Tensor | None = None) -> Tensor:
    """The tensor, or a copy in host memory that only the first call waits for.

    It is remembered for as long as the tensor lives, which it is a view of or lies `within`, and
    made anew when torch knows of something written to that. What is written past torch, as by a
    library that shares the memory, is not seen.
    """
    if tensor.is_cpu or torch.compiler.is_compiling():  # there torch looks at it itself
        return tensor
    owner = within if within is not None else tensor if tensor._base is None else tensor._base
    key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
    # what is made in inference mode has no version
    version = None if tensor.is_inference() else tensor._version
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        views: dict[Any, tuple[int | None, Tensor]] = _copies.setdefault(owner, {})
        found = views.get(key)
        if found is not None and found[0] == version is not None:
            return found[1]
        copy = tensor.cpu()
        if found is not None and torch.equal(copy, found[1]):
            copy = found[1]  # so that what was made of it is found, too
        if len(views) >= _MOST_VIEWS:
            views.clear()
        views[key] = version, copy
    return copy
