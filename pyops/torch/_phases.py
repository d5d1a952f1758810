"""Phases of an operator as autograd functions, each the derivative of the previous one.

`Gradient` is the VJP of `Value`, and `Second` that of `Gradient`; `Tangent` is the JVP of `Value`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from ._call import MaybeTensor, PhaseCall, by_name, needs_grad
from ._phase import Arguments, Context, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

Gradients: TypeAlias = "tuple[MaybeTensor, ...]"


def _add(parts: Sequence[Sequence[MaybeTensor]]) -> Gradients:
    """Sum the parts elementwise, skipping None."""

    def add(one: MaybeTensor, other: MaybeTensor) -> MaybeTensor:
        return other if one is None else one if other is None else one + other

    return tuple(functools.reduce(add, some) for some in zip(*parts, strict=True))


class Value(Phase[Tensor]):
    name = "forward"

    @staticmethod
    def forward(call: PhaseCall, *inputs: MaybeTensor) -> Tensor:
        return call.run("forward", inputs)[0]

    @staticmethod
    def setup_context(ctx: Context, inputs: Arguments, output: object) -> None:
        Phase.setup_context(ctx, inputs, output)
        call, *tensors = inputs
        if call.keeps:
            ctx.save_for_backward(*tensors, *call.take_saved())

    @staticmethod
    def backward(ctx: Context, *cotangents: MaybeTensor) -> Gradients:
        call, (gy,) = ctx.call, cotangents
        inputs = ctx.saved_tensors[: len(call.names)]
        wanted = _wanted(call.names, _needed(ctx, inputs))
        if gy is None or not wanted:
            return (None,) * (1 + len(inputs))
        return None, *by_name(call.names, wanted, Gradient.of(call, wanted, *inputs, gy))

    @staticmethod
    def jvp(ctx: Context, _: None, *tangents: MaybeTensor) -> Tensor:
        return Tangent.of(ctx.call, *ctx.saved_tensors, *tangents)


class Gradient(Phase["tuple[Tensor, ...]"]):
    name = "backward"

    @staticmethod
    def forward(
        call: PhaseCall, wanted: tuple[str, ...], *inputs_and_gy: MaybeTensor
    ) -> tuple[Tensor, ...]:
        return call.run("backward", inputs_and_gy, wanted)

    @staticmethod
    def backward(ctx: Context, *cotangents: MaybeTensor) -> Gradients:
        call, wanted, tensors = ctx.call, ctx.wanted, ctx.saved_tensors
        names = [*call.names, "gy"]
        needed = _wanted(names, _needed(ctx, tensors))
        if not needed or all(h is None for h in cotangents):
            return (None,) * (2 + len(tensors))
        hs = by_name(call.names, wanted, cotangents)
        return None, None, *by_name(names, needed, Second.of(call, needed, *tensors, *hs))

    @staticmethod
    def jvp(ctx: Context, _: None, __: None, *tangents: MaybeTensor) -> Gradients:
        """Second derivatives are symmetric, so `Second` gives them times the tangents."""
        call, wanted, (*inputs, gy) = ctx.call, ctx.wanted, ctx.saved_tensors
        *input_tangents, gy_tangent = tangents
        parts = []
        if any(t is not None for t in input_tangents):
            parts.append(Second.of(call, wanted, *inputs, gy, *input_tangents))
        if gy_tangent is not None:
            parts.append(Gradient.of(call, wanted, *inputs, gy_tangent))
        return _add(parts) if parts else (None,) * len(wanted)


class Tangent(Phase[Tensor]):
    name = "jvp"

    @staticmethod
    def forward(call: PhaseCall, *inputs_and_tangents: MaybeTensor) -> Tensor:
        return call.run("jvp", inputs_and_tangents)[0]

    @staticmethod
    def backward(ctx: Context, *cotangents: MaybeTensor) -> Gradients:
        call, tensors, (dgy,) = ctx.call, ctx.saved_tensors, cotangents
        count, needed = len(call.names), _needed(ctx, tensors)
        inputs, tangents = tensors[:count], tensors[count:]
        by_inputs = _wanted(call.names, needed[:count])
        by_tangents = _wanted(call.names, needed[count:])
        first: list[MaybeTensor] = [None] * count
        second: list[MaybeTensor] = [None] * count
        if dgy is not None and by_inputs:
            found = Second.of(call, by_inputs, *inputs, dgy, *tangents)
            first = by_name(call.names, by_inputs, found)
        if dgy is not None and by_tangents:
            found = Gradient.of(call, by_tangents, *inputs, dgy)
            second = by_name(call.names, by_tangents, found)
        return None, *first, *second

    @staticmethod
    def jvp(ctx: Context, _: None, *tangents: MaybeTensor) -> Tensor:
        call, tensors = ctx.call, ctx.saved_tensors
        count = len(call.names)
        if any(t is not None for t in tangents[:count]):
            raise _unsupported(call, "forward mode over forward mode")
        return Tangent.of(call, *tensors[:count], *tangents[count:])


class Second(Phase["tuple[Tensor, ...]"]):
    name = "double_backward"

    @staticmethod
    def forward(
        call: PhaseCall, wanted: tuple[str, ...], *arguments: MaybeTensor
    ) -> tuple[Tensor, ...]:
        return call.run("double_backward", arguments, wanted)

    @staticmethod
    def backward(ctx: Context, *cotangents: MaybeTensor) -> Gradients:
        given = next((c for c in cotangents if c is not None), None)
        if given is None:
            return (None,) * len(ctx.needs_input_grad)
        # refused when it runs: torch also traces unused derivatives
        what = str(_unsupported(ctx.call, "third derivatives"))
        refuse = torch.ops.pyops.beyond
        return None, None, *(t if t is None else refuse(t, given, what) for t in ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Context, *tangents: MaybeTensor) -> None:
        raise _unsupported(ctx.call, "third derivatives")


class Attention(Phase[Tensor]):
    """Attention weights, not differentiable."""

    name = "attention"

    @staticmethod
    def forward(call: PhaseCall, *inputs: MaybeTensor) -> Tensor:
        return call.run("attention", inputs)[0]

    @staticmethod
    def setup_context(ctx: Context, inputs: Arguments, output: object) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Context, *cotangents: MaybeTensor) -> Gradients:
        return (None,) * len(ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Context, *tangents: MaybeTensor) -> None:
        return None


def _needed(ctx: Context, tensors: Sequence[MaybeTensor]) -> list[bool]:
    """Return for each tensor whether a phase has to compute its gradient.

    The tensors, the last arguments of the phase, are passed as they may be unpacked only once.
    """
    needed = ctx.needs_input_grad[-len(tensors) :]
    if sum(needed) == 1:  # the node runs for that one alone, and the query of torch is costly
        return [*needed]
    used = needs_grad(ctx, tensors)
    return [need and use for need, use in zip(needed, used, strict=True)]


def _wanted(names: Sequence[str], needed: Sequence[bool]) -> tuple[str, ...]:
    return tuple(name for name, need in zip(names, needed, strict=True) if need)


def _unsupported(call: PhaseCall, what: str) -> NotImplementedError:
    return NotImplementedError(f"pyops.torch.{call.op.name}: {what}: pyops ends at the second")
