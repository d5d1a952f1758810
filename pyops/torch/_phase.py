"""Base class of the autograd functions of an operator's phases."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, forward_ad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._call import MaybeTensor, PhaseArgument, PhaseCall

Arguments: TypeAlias = "tuple[Any, ...]"
"""The call, the names of the requested results if there are several, and tensors."""
Result = TypeVar("Result")
"""A tensor or a tuple of tensors."""


class Context(Protocol):
    """Node of a phase in torch's graph."""

    call: PhaseCall
    wanted: tuple[str, ...]
    """Names of the requested results, empty for phases with a single one."""
    needs_input_grad: tuple[bool, ...]

    @property
    def saved_tensors(self) -> tuple[MaybeTensor, ...]: ...

    def save_for_backward(self, *tensors: MaybeTensor) -> None: ...
    def save_for_forward(self, *tensors: MaybeTensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...
    def mark_non_differentiable(self, *outputs: object) -> None: ...


class BatchInfo(Protocol):
    """Description of a batch by `torch.func.vmap`."""

    batch_size: int


def map_batch(
    function: Callable[..., Any],
    count: int,
    dims: Sequence[int | None],
    batches: Sequence[object],
) -> Any:
    """Call a function for each element of a batch and stack the results.

    Of an empty batch, the call with zeros determines the shapes.
    """

    def element(batch: object, dim: int | None, i: int) -> object:
        if dim is None or not isinstance(batch, Tensor):
            return batch
        return batch.select(dim, i) if count else batch.sum(dim)

    rows = [
        function(*(element(b, d, i) for b, d in zip(batches, dims, strict=True)))
        for i in range(max(count, 1))
    ]
    if isinstance(rows[0], Tensor):
        return torch.stack(rows)[:count]
    return tuple(torch.stack(some)[:count] for some in zip(*rows, strict=True))


class Phase(Function, Generic[Result]):
    """Base class of the phases: recording for autograd, and mapping over a batch."""

    name: ClassVar[str]
    _apply_level: ClassVar[Callable[..., Any]] = vars(torch._C._FunctionBase)["apply"]
    """`Function.apply` of torch's C++ code, which neither handles transformations nor searches the
    signature for defaults."""

    @classmethod
    def of(cls, call: PhaseCall, *arguments: PhaseArgument) -> Result:
        """Return the results, recorded for autograd only if a derivative may be requested."""
        result: Result
        if any(map(is_legacy_batchedtensor, _tensors(arguments))):
            result = map_batches(cls.of, call, *arguments)
        elif call.dispatched:
            result = call.dispatch(cls.name, *arguments)
        elif torch._C._are_functorch_transforms_active():
            result = cls.apply(call, *arguments)
        else:
            result = cls.of_level(call, *arguments)
        return result

    @classmethod
    def of_level(cls, call: PhaseCall, *arguments: PhaseArgument) -> Result:
        """Run at one level of transformations; torch has processed the other levels."""
        result: Result
        if not tracks_derivatives(_tensors(arguments)):
            result = cls.forward(call, *arguments)
            return result
        if call.op.signature.keeps and not call.dispatched:
            call.keeps = not is_transformed()
        result = cls._apply_level(*unwrap_dead_wrappers((call, *arguments)))
        return result

    @staticmethod
    def setup_context(ctx: Context, inputs: Arguments, output: object) -> None:
        ctx.call = inputs[0]
        ctx.wanted, tensors = _split(inputs[1:])
        ctx.save_for_backward(*tensors)
        if is_transformed():
            ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @classmethod
    def vmap(
        cls, info: BatchInfo, in_dims: Sequence[int | None], *arguments: object
    ) -> tuple[Result, int | tuple[int, ...]]:
        """Call once for each element of the batch."""
        found = map_batch(cls.apply, info.batch_size, in_dims, arguments)
        return found, 0 if isinstance(found, Tensor) else (0,) * len(found)


def map_batches(function: Callable[..., Any], *arguments: Any) -> Any:
    """Map a function over the batches of torch.autograd, as for `is_grads_batched`."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return _unbatched(function, level, *arguments)


def _unbatched(function: Callable[..., Any], level: int, *arguments: Any) -> Any:
    if level == 0:
        return function(*arguments)
    # a tensor without a batch at this level becomes a batch of one
    batches = [
        torch._remove_batch_dim(a, level, 1, 0) if isinstance(a, Tensor) else a for a in arguments
    ]
    sizes = [len(b) if isinstance(b, Tensor) else 1 for b in batches]
    count = next((size for size in sizes if size != 1), 1)
    dims = [0 if isinstance(b, Tensor) else None for b in batches]
    batches = [b.expand(count, *b.shape[1:]) if isinstance(b, Tensor) else b for b in batches]
    found = map_batch(functools.partial(_unbatched, function, level - 1), count, dims, batches)
    if isinstance(found, Tensor):
        return torch._add_batch_dim(found, 0, level)
    return tuple(torch._add_batch_dim(f, 0, level) for f in found)


def is_transformed() -> bool:
    """Return whether tensors may have tangents or a transformation of torch.func is active."""
    return bool(forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active())


def tracks_derivatives(tensors: Sequence[Tensor]) -> bool:
    """Return whether a derivative with respect to these tensors may be requested."""
    if is_transformed():
        return True
    if not torch.is_grad_enabled():
        return False
    return any(tensor.requires_grad for tensor in tensors)


def _split(arguments: Arguments) -> tuple[tuple[str, ...], tuple[MaybeTensor, ...]]:
    """Return the names of the requested results, if any, and the tensors."""
    if type(arguments[0]) is tuple:
        return arguments[0], arguments[1:]
    return (), arguments


def _tensors(arguments: Sequence[PhaseArgument]) -> list[Tensor]:
    return [a for a in arguments if a is not None and not isinstance(a, tuple)]
