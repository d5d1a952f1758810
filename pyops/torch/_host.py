"""Numbers of tensors in host memory, where indices are checked and packed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Of tensors on a device: their version and the copy of it."""


def on_host(tensor: Tensor) -> Tensor:
    """The tensor, or a copy in host memory that only the first call waits for.

    It is made anew when torch knows of something written to the tensor; what is written past
    torch, as by a library that shares the memory, is not seen.
    """
    if tensor.is_cpu:
        return tensor
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        if tensor.is_inference():  # it has no version
            return tensor.cpu()
        found = _copies.get(tensor)
        if found is None or found[0] != tensor._version:
            found = _copies[tensor] = tensor._version, tensor.cpu()
    copy: Tensor = found[1]
    return copy
