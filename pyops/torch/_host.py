"""Numbers of tensors in host memory, where indices are checked and packed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

PLAIN = Tensor, torch.nn.Parameter
_BEFORE_DISPATCH = torch._C.DispatchKey.PreDispatch
"""Set where a mode records what is called before autograd sees it."""
_MOST_VIEWS = 16
_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Of tensors on a device: the versions and copies of them and of their views."""


def on_host(tensor: Tensor, within: Tensor | None = None) -> Tensor:
    """The tensor, or a copy in host memory that only the first call waits for.

    It is remembered for as long as the tensor lives, which it is a view of or lies `within`, and
    made anew when torch knows of something written to that. What is written past torch, as by a
    library that shares the memory, is not seen.
    """
    if torch.compiler.is_compiling():  # there torch looks at it itself
        return tensor
    if torch._C._are_functorch_transforms_active():
        tensor = plain(tensor)
    if tensor.is_cpu:
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


def in_memory(tensor: Tensor) -> Tensor:
    """A tensor that another library can read, in the same memory if it can be.

    Of some tensors torch holds only that they are negated, or that they are zeros.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def plain(tensor: Tensor) -> Tensor:
    """The tensor itself, within transformations of torch.func that wrap it."""
    while torch._C._functorch.is_gradtrackingtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def is_mapped(tensor: Tensor) -> bool:
    """Whether `torch.func.vmap` maps over the tensor, whose elements then cannot be looked at."""
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return False
    return bool(torch._C._functorch.is_batchedtensor(plain(tensor)))


def array_of(index: Tensor) -> Any:
    """The elements of an index as an array, whatever transformation is under way."""
    held = on_host(index)
    with torch._C._DisableFuncTorch():
        return held.numpy()


def recording(*tensors: Tensor | None) -> bool:
    """Whether torch records what is called, in place of calling it.

    It does while it compiles, under `torch.jit.trace`, in modes such as that of `make_fx`, and for
    tensors of other types.
    """
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_tracing()
        or torch._C._dispatch_tls_is_dispatch_key_included(_BEFORE_DISPATCH)
    ) or any(t is not None and type(t) not in PLAIN for t in tensors)


def without_subclass(index: Any) -> Any:
    """An index as a plain tensor of the same memory, if it is of a subclass of `Tensor`.

    That covers subclasses that leave the dispatch of torch alone, such as `torch.nn.Parameter`, and
    those that hold a tensor, such as `torch_geometric.Index`. Others, by which torch traces, stay.
    If torch records, the plain tensor is the result of operations that it records: a tracer does
    not know the tensor that is held, nor one that `as_subclass` makes, and has them as constants.
    """
    if type(index) is Tensor or not isinstance(index, Tensor):
        return index
    compiling = torch.compiler.is_compiling()
    if hasattr(index, "as_tensor"):
        if compiling or not recording():
            return index.as_tensor()
        return index.unsqueeze(0).squeeze(0)  # views that such subclasses leave to torch
    if compiling or type(index).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return index
    with torch._C.DisableTorchFunctionSubclass():
        return torch.ops.aten.alias(index) if recording() else index.as_subclass(Tensor)
