"""The phases of an operator as functions that torch differentiates: each by the next one.

A value is differentiated by `Gradient`, that by `Second`; a value moved forward is a `Tangent`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, forward_ad

from .._arrays import on_device
from .._door import Door
from .._operator import Operator
from ..graph import Graph
from ._call import PLAIN, Call, Maybe, awaited, by_name, check
from ._graph import Ends
from ._graph import Graph as TorchGraph
from ._library import Registered


def total(parts: Sequence[Sequence[Maybe]]) -> tuple[Maybe, ...]:
    """The sums of what is there."""

    def add(one: Maybe, other: Maybe) -> Maybe:
        return other if one is None else one if other is None else one + other

    return tuple(functools.reduce(add, some) for some in zip(*parts, strict=True))


class Phase(Function):  # type: ignore[misc]
    """What the phases share: how they are remembered, and how they are mapped over a batch."""

    @classmethod
    def of(cls, *arguments: Any) -> Any:
        """The results, remembered only where a derivative may be asked for."""
        if not _recorded(arguments):
            return cls.forward(*arguments)
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*arguments)
        # `apply` looks for defaults in the signature at every call; there are none
        return super(Function, cls).apply(*unwrap_dead_wrappers(arguments))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.told = [value for value in inputs if not isinstance(value, Tensor | None)]
        tensors = inputs[len(ctx.told) :]
        ctx.save_for_backward(*tensors)
        if _moving():
            ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *arguments: Any) -> Any:
        """One call for each of the batch."""

        def pick(place: int) -> list[Any]:
            return [
                a if d is None or not isinstance(a, Tensor) else a.select(d, place)
                for a, d in zip(arguments, in_dims, strict=True)
            ]

        rows = [cls.apply(*pick(place)) for place in range(info.batch_size)]
        if isinstance(rows[0], Tensor):
            return torch.stack(rows), 0
        return tuple(torch.stack(some) for some in zip(*rows, strict=True)), (0,) * len(rows[0])


class Value(Phase):
    @staticmethod
    def forward(call: Call, *inputs: Maybe) -> Tensor:
        return call.run("forward", inputs)[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        (call,), inputs, (gy,) = ctx.told, ctx.saved_tensors, cotangents
        wanted = _wanted(call.names, _needed(ctx))
        if gy is None or not wanted:
            return (None,) * (1 + len(inputs))
        return None, *by_name(call.names, wanted, Gradient.of(call, wanted, *inputs, gy))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Maybe) -> Any:
        return Tangent.of(*ctx.told, *ctx.saved_tensors, *tangents)


class Gradient(Phase):
    @staticmethod
    def forward(call: Call, wanted: tuple[str, ...], *inputs_and_gy: Maybe) -> tuple[Tensor, ...]:
        return call.run("backward", inputs_and_gy, wanted)

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        (call, wanted), tensors = ctx.told, ctx.saved_tensors
        names = [*call.names, "gy"]
        needed = _wanted(names, _needed(ctx))
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
    @staticmethod
    def forward(call: Call, *inputs_and_tangents: Maybe) -> Tensor:
        return call.run("jvp", inputs_and_tangents)[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        (call,), tensors, (dgy,) = ctx.told, ctx.saved_tensors, cotangents
        count, needed = len(call.names), _needed(ctx)
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
    @staticmethod
    def forward(call: Call, wanted: tuple[str, ...], *arguments: Maybe) -> tuple[Tensor, ...]:
        return call.run("double_backward", arguments, wanted)

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> Any:
        if all(c is None for c in cotangents):
            return (None,) * (2 + len(ctx.saved_tensors))
        raise _beyond(ctx.told[0], "third derivatives")

    @staticmethod
    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        raise _beyond(ctx.told[0], "third derivatives")


def _needed(ctx: Any) -> list[bool]:
    """Which of its tensors a phase has to give gradients to."""
    needed = ctx.needs_input_grad[len(ctx.told) :]
    waiting = awaited(ctx, ctx.saved_tensors)
    return [need and wait for need, wait in zip(needed, waiting, strict=True)]


def _wanted(names: Sequence[str], needed: Sequence[bool]) -> tuple[str, ...]:
    return tuple(name for name, need in zip(names, needed, strict=True) if need)


def _beyond(call: Call, what: str) -> NotImplementedError:
    return NotImplementedError(f"pyops.torch.{call.op.name}: {what}: pyops ends at the second")


def _traced(tensors: Sequence[Maybe]) -> bool:
    """Whether torch looks at what is called, in place of calling it."""
    if torch.compiler.is_compiling():
        return True
    return any(t is not None and type(t) not in PLAIN for t in tensors)


def _moving() -> bool:
    """Whether tensors may have tangents, or a transformation of torch.func is under way."""
    return bool(forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active())


def _recorded(arguments: Sequence[Any]) -> bool:
    """Whether a derivative may be asked for."""
    if _moving():
        return True
    if not torch.is_grad_enabled():
        return False
    return any(isinstance(a, Tensor) and a.requires_grad for a in arguments)


def _plain(label: str, graph: Any) -> Any:
    if not isinstance(graph, (Graph, Ends)) and not on_device(graph):
        raise TypeError(f"{label}: graph: expected pyops.Graph, got {type(graph).__name__}")
    return graph


def function(op: Operator) -> Callable[..., Tensor]:
    """The operator on tensors."""
    door, registered = Door(op, "torch"), Registered(op)

    def call(*inputs: Any, **options: Any) -> Tensor:
        graph, tensors = door.arguments(inputs, _plain, check)
        if _traced(tensors):
            if graph is not None and not isinstance(graph, (TorchGraph, Ends)):
                raise TypeError(
                    f"{door.label}: graph: expected pyops.torch.Graph where torch compiles, "
                    "or where a tensor is of a subclass"
                )
            return registered(graph, tensors, options)
        result: Tensor = Value.of(Call(op, graph, options), *tensors)
        return result

    door.dress(call)
    return call
