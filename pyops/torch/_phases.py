"""Phases of an operator as autograd functions, each the derivative of the previous one.

`Gradient` is the VJP of `Value`, and `Second` that of `Gradient`; `Tangent` is the JVP of `Value`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, forward_ad

from ._call import Call, Maybe, awaited, by_name


def total(parts: Sequence[Sequence[Maybe]]) -> tuple[Maybe, ...]:
    """Sum the parts elementwise, skipping None."""

    def add(one: Maybe, other: Maybe) -> Maybe:
        return other if one is None else one if other is None else one + other

    return tuple(functools.reduce(add, some) for some in zip(*parts, strict=True))


def each(
    function: Callable[..., Any], count: int, dims: Sequence[int | None], batches: Sequence[Any]
) -> Any:
    """Call a function for each element of a batch and stack the results.

    Of an empty batch, the call with zeros determines the shapes.
    """

    def pick(batch: Any, dim: int | None, place: int) -> Any:
        if dim is None or not isinstance(batch, Tensor):
            return batch
        return batch.select(dim, place) if count else batch.sum(dim)

    rows = [
        function(*(pick(b, d, place) for b, d in zip(batches, dims, strict=True)))
        for place in range(max(count, 1))
    ]
    if isinstance(rows[0], Tensor):
        return torch.stack(rows)[:count]
    return tuple(torch.stack(some)[:count] for some in zip(*rows, strict=True))


class Phase(Function):  # type: ignore[misc]
    """Base class of the phases: recording for autograd, and mapping over a batch."""

    name: str

    @classmethod
    def of(cls, *arguments: Any) -> Any:
        """Return the results, recorded for autograd only if a derivative may be requested."""
        if any(map(is_legacy_batchedtensor, _tensors(arguments))):
            level = torch._C._vmapmode_increment_nesting() - 1
            torch._C._vmapmode_decrement_nesting()
            return cls._unbatched(level, *arguments)
        if arguments[0].dispatched:
            return arguments[0].dispatch(cls.name, *arguments[1:])
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*arguments)
        return cls.record(*arguments)

    @classmethod
    def record(cls, *arguments: Any) -> Any:
        """Run at one level of transformations; torch has processed the other levels."""
        if not is_recorded(_tensors(arguments)):
            return cls.forward(*arguments)
        call = arguments[0]
        if call.op.signature.keeps and not call.dispatched:
            call.keeps = not moving()
        # `apply` would search the signature for defaults at every call; there are none
        return super(Function, cls).apply(*unwrap_dead_wrappers(arguments))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        told = _told(inputs)
        ctx.told, tensors = inputs[:told], inputs[told:]
        ctx.save_for_backward(*tensors)
        if moving():
            ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *arguments: Any) -> Any:
        """Call once for each element of the batch."""
        found = each(cls.apply, info.batch_size, in_dims, arguments)
        return found, 0 if isinstance(found, Tensor) else (0,) * len(found)

    @classmethod
    def _unbatched(cls, level: int, *arguments: Any) -> Any:
        """Map over the batches of torch.autograd, as for `is_grads_batched`."""
        if level == 0:
            return cls.of(*arguments)
        # a tensor without a batch at this level becomes a batch of one
        batches = [
            torch._remove_batch_dim(a, level, 1, 0) if isinstance(a, Tensor) else a
            for a in arguments
        ]
        sizes = [len(b) if isinstance(b, Tensor) else 1 for b in batches]
        count = next((size for size in sizes if size != 1), 1)
        dims = [0 if isinstance(b, Tensor) else None for b in batches]
        batches = [b.expand(count, *b.shape[1:]) if isinstance(b, Tensor) else b for b in batches]
        found = each(functools.partial(cls._unbatched, level - 1), count, dims, batches)
        if isinstance(found, Tensor):
            return torch._add_batch_dim(found, 0, level)
        return tuple(torch._add_batch_dim(f, 0, level) for f in found)


class Value(Phase):
    name = "forward"

    @staticmethod
    def forward(call: Call, *inputs: Maybe) -> Tensor:
        return call.run("forward", inputs)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        Phase.setup_context(ctx, inputs, output)
        call, *tensors = inputs
        if call.keeps:
            ctx.save_for_backward(*tensors, *call.lend())

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        (call,), (gy,) = ctx.told, cotangents
        inputs = ctx.saved_tensors[: len(call.names)]
        wanted = _wanted(call.names, _needed(ctx, inputs))
        if gy is None or not wanted:
            return (None,) * (1 + len(inputs))
        return None, *by_name(call.names, wanted, Gradient.of(call, wanted, *inputs, gy))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Maybe) -> Any:
        return Tangent.of(*ctx.told, *ctx.saved_tensors, *tangents)


class Gradient(Phase):
    name = "backward"

    @staticmethod
    def forward(call: Call, wanted: tuple[str, ...], *inputs_and_gy: Maybe) -> tuple[Tensor, ...]:
        return call.run("backward", inputs_and_gy, wanted)

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        (call, wanted), tensors = ctx.told, ctx.saved_tensors
        names = [*call.names, "gy"]
        needed = _wanted(names, _needed(ctx, tensors))
        if not needed or all(h is None for h in cotangents):
            return (None,) * (2 + len(tensors))
        hs = by_name(call.names, wanted, cotangents)
        return None, None, *by_name(names, needed, Second.of(call, needed, *tensors, *hs))

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: Maybe) -> Any:
        """Second derivatives are symmetric, so `Second` gives them times the tangents."""
        (call, wanted), (*inputs, gy) = ctx.told, ctx.saved_tensors
        *along, along_gy = tangents
        parts = []
        if any(t is not None for t in along):
            parts.append(Second.of(call, wanted, *inputs, gy, *along))
        if along_gy is not None:
            parts.append(Gradient.of(call, wanted, *inputs, along_gy))
        return total(parts) if parts else (None,) * len(wanted)


class Tangent(Phase):
    name = "jvp"

    @staticmethod
    def forward(call: Call, *inputs_and_tangents: Maybe) -> Tensor:
        return call.run("jvp", inputs_and_tangents)[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        (call,), tensors, (dgy,) = ctx.told, ctx.saved_tensors, cotangents
        count, needed = len(call.names), _needed(ctx, tensors)
        inputs, tangents = tensors[:count], tensors[count:]
        by_inputs = _wanted(call.names, needed[:count])
        by_tangents = _wanted(call.names, needed[count:])
        first: list[Maybe] = [None] * count
        second: list[Maybe] = [None] * count
        if dgy is not None and by_inputs:
            found = Second.of(call, by_inputs, *inputs, dgy, *tangents)
            first = by_name(call.names, by_inputs, found)
        if dgy is not None and by_tangents:
            found = Gradient.of(call, by_tangents, *inputs, dgy)
            second = by_name(call.names, by_tangents, found)
        return None, *first, *second

    @staticmethod
    def jvp(ctx: Any, _: None, *moved: Maybe) -> Any:
        (call,), tensors = ctx.told, ctx.saved_tensors
        count = len(call.names)
        if any(t is not None for t in moved[:count]):
            raise _beyond(call, "forward mode over forward mode")
        return Tangent.of(call, *tensors[:count], *moved[count:])


class Second(Phase):
    name = "double_backward"

    @staticmethod
    def forward(call: Call, wanted: tuple[str, ...], *arguments: Maybe) -> tuple[Tensor, ...]:
        return call.run("double_backward", arguments, wanted)

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        given = next((c for c in cotangents if c is not None), None)
        if given is None:
            return (None,) * len(ctx.needs_input_grad)
        # refused when it runs: torch also traces unused derivatives
        what = str(_beyond(ctx.told[0], "third derivatives"))
        refuse = torch.ops.pyops.beyond
        return None, None, *(t if t is None else refuse(t, given, what) for t in ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        raise _beyond(ctx.told[0], "third derivatives")


class Attention(Phase):
    """Attention weights, not differentiable."""

    name = "attention"

    @staticmethod
    def forward(call: Call, *inputs: Maybe) -> Tensor:
        return call.run("attention", inputs)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        return (None,) * ctx.count

    @staticmethod
    def jvp(ctx: Any, *tangents: Maybe) -> None:
        return None


def _needed(ctx: Any, tensors: Sequence[Maybe]) -> list[bool]:
    """Return for each tensor whether a phase has to compute its gradient.

    Takes the tensors as an argument: they may be unpacked only once.
    """
    needed = ctx.needs_input_grad[len(ctx.told) :]
    if sum(needed) == 1:  # the node runs for that one alone, and the query of torch is costly
        return [*needed]
    waiting = awaited(ctx, tensors)
    return [need and wait for need, wait in zip(needed, waiting, strict=True)]


def _wanted(names: Sequence[str], needed: Sequence[bool]) -> tuple[str, ...]:
    return tuple(name for name, need in zip(names, needed, strict=True) if need)


def _beyond(call: Call, what: str) -> NotImplementedError:
    return NotImplementedError(f"pyops.torch.{call.op.name}: {what}: pyops ends at the second")


def moving() -> bool:
    """Return whether tensors may have tangents or a transformation of torch.func is active."""
    return bool(forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active())


def is_recorded(tensors: Sequence[Tensor]) -> bool:
    """Return whether a derivative with respect to these tensors may be requested."""
    if moving():
        return True
    if not torch.is_grad_enabled():
        return False
    return any(tensor.requires_grad for tensor in tensors)


def _told(arguments: Sequence[Any]) -> int:
    """Return the number of leading arguments: the call and, if given, the requested names."""
    return 2 if len(arguments) > 1 and type(arguments[1]) is tuple else 1


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    return [a for a in arguments[_told(arguments) :] if a is not None]
