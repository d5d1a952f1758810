"""Host copies of tensors; indices are checked and packed in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

if TYPE_CHECKING:
    from .._call.indices import Indices

PLAIN = Tensor, torch.nn.Parameter
_BEFORE_DISPATCH = torch._C.DispatchKey.PreDispatch
"""Dispatch key of modes that record calls before autograd."""
_MOST_VIEWS = 16
ViewKey: TypeAlias = "tuple[int, torch.Size, tuple[int, ...], torch.dtype]"
"""Address, shape, strides and type of a view."""
Given = TypeVar("Given")
_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Versions and host copies of device tensors and of their views."""


def on_host(tensor: Tensor, within: Tensor | None = None) -> Tensor:
    """Return the tensor if it is in host memory, else a cached copy in host memory.

    The copy is cached as long as the tensor lives, its base if it is a view, or the tensor `within`
    which it lies. It is renewed if torch's version counter shows a write. Writes that bypass torch,
    as by a library that shares the memory, go unnoticed.
    """
    if torch.compiler.is_compiling():  # the compiler handles the tensor itself
        return tensor
    if torch._C._are_functorch_transforms_active():
        tensor = plain(tensor)
    if tensor.is_cpu:
        return tensor
    owner = within if within is not None else tensor if tensor._base is None else tensor._base
    key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
    # inference tensors have no version counter
    version = None if tensor.is_inference() else tensor._version
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        views: dict[ViewKey, tuple[int | None, Tensor]] = _copies.setdefault(owner, {})
        found = views.get(key)
        if found is not None and found[0] == version is not None:
            return found[1]
        copy = tensor.cpu()
        if found is not None and torch.equal(copy, found[1]):
            copy = found[1]  # so that graphs cached for this copy are found
        if len(views) >= _MOST_VIEWS:
            views.clear()
        views[key] = version, copy
    return copy


def in_memory(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory another library can read, shared if possible.

    Materializes tensors with a pending negation and zero tensors without memory.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def as_bits(tensor: Tensor) -> Tensor:
    """Return a tensor of half precision as 16-bit integers in the same memory."""
    return in_memory(tensor).view(torch.int16)


def plain(tensor: Tensor) -> Tensor:
    """Unwrap a tensor from the gradient-tracking wrappers of torch.func."""
    while torch._C._functorch.is_gradtrackingtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def is_mapped(tensor: Tensor) -> bool:
    """Return whether `torch.func.vmap` maps over the tensor, which hides its elements."""
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return False
    return bool(torch._C._functorch.is_batchedtensor(plain(tensor)))


def array_of(index: Tensor) -> Indices:
    """Return the elements of an index as an array, under any transformation of torch.func."""
    held = on_host(index)
    with torch._C._DisableFuncTorch():
        elements: Indices = held.numpy()
    return elements


def is_tracing(*tensors: Tensor | None) -> bool:
    """Return whether torch traces calls in place of running them.

    It does while compiling, under `torch.jit.trace`, in dispatch modes such as that of `make_fx`,
    and for subclasses of `Tensor`.
    """
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_tracing()
        or torch._C._dispatch_tls_is_dispatch_key_included(_BEFORE_DISPATCH)
    ) or any(t is not None and type(t) not in PLAIN for t in tensors)


def without_subclass(index: Given) -> Given | Tensor:
    """Return an index of a subclass of `Tensor` as a plain tensor of the same memory.

    Covers subclasses without `__torch_dispatch__`, such as `torch.nn.Parameter`, and subclasses
    that wrap a tensor, such as `torch_geometric.Index`. Others, with which torch traces, are
    returned as they are. If torch records, the plain tensor is the result of recorded operations:
    to a tracer, a wrapped tensor or the result of `as_subclass` is a constant.
    """
    if type(index) is Tensor or not isinstance(index, Tensor):
        return index
    compiling = torch.compiler.is_compiling()
    if hasattr(index, "as_tensor"):
        if compiling or not is_tracing():
            wrapped: Tensor = index.as_tensor()
            return wrapped
        return index.unsqueeze(0).squeeze(0)  # such subclasses return plain tensors for views
    if compiling or type(index).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return index
    with torch._C.DisableTorchFunctionSubclass():
        plain: Tensor = torch.ops.aten.alias(index) if is_tracing() else index.as_subclass(Tensor)
    return plain
