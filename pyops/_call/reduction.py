"""Sums, means and extremes over axes, built from the functions of the table."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from .._functions import CODES, FUNCTIONS
from .arrays import hand_over
from .broadcast import Lengths, Strides, element_strides
from .elementwise import (
    DECLARATION,
    OPERATIONS,
    BroadcastPhase,
    Elementwise,
    kernel_name,
    plan_call,
)
from .operator import OPERATORS, Operator
from .phase import Phase, compiled
from .plan import Plan, check_arrays

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .types import Array, Dtype, Options, Shaped


class Axes(NamedTuple):
    """Shapes and strides of a reduction."""

    keep: Lengths
    """Shape with length 1 for the reduced axes."""
    shape: Lengths
    """Shape of the result."""
    terms: int
    """Elements reduced to one result."""

    def strides(self, array: Array) -> tuple[Lengths, Strides]:
        """Return shape and strides, with all axes, of an array that has the shape of the result."""
        strides = element_strides(array)
        own = iter([s for n, s in zip(array.shape, strides, strict=True) if n != 1])
        return self.keep, tuple(0 if n == 1 else next(own) for n in self.keep)


def check_axis(caller: str, axis: object) -> int | tuple[int, ...] | None:
    """Return the axes that an option names; None stands for all."""
    if axis is None:
        return None
    checked = []
    for number in axis if isinstance(axis, tuple) else (axis,):
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise TypeError(
                f"{caller}: axis: expected an integer, a tuple of them or None, got {axis!r}"
            )
        checked.append(int(number))
    return tuple(checked) if isinstance(axis, tuple) else checked[0]


def reduced(
    caller: str, shape: Lengths, axis: int | tuple[int, ...] | None, keepdims: bool
) -> Axes:
    """Return the shapes after reduction over `axis`."""
    rank = len(shape)
    axes: set[int] = set()
    for number in range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,):
        if not -rank <= number < rank:
            raise ValueError(
                f"{caller}: axis: expected axes from {-rank} to {rank - 1} of x, got {axis!r}"
            )
        if number % rank in axes:
            raise ValueError(f"{caller}: axis: expected different axes, got {axis!r}")
        axes.add(number % rank)
    keep = tuple(1 if i in axes else n for i, n in enumerate(shape))
    rest = tuple(n for i, n in enumerate(shape) if i not in axes)
    return Axes(keep, keep if keepdims else rest, math.prod(shape[i] for i in axes))


def _select(x1: Annotated[Array, "..."], x2: Annotated[Array, "..."]) -> Annotated[Array, "..."]:
    """Declare a function that its kernel computes."""
    raise AssertionError


SELECT = Elementwise(FUNCTIONS[CODES["select"] - 1], _select)
del OPERATORS[SELECT.name]


class ReductionPhase(BroadcastPhase):
    """Phase of sum or mean; its derivatives are sums and copies."""

    def checked(self, options: Mapping[str, object]) -> Options:
        return dict(zip(("axis", "keepdims"), self._axis_and_keepdims(options), strict=True))

    def _axis_and_keepdims(
        self, options: Mapping[str, object]
    ) -> tuple[int | tuple[int, ...] | None, bool]:
        axis, keepdims = self._complete(options).values()
        if not isinstance(keepdims, (bool, np.bool_)):
            raise TypeError(f"{self.caller}: keepdims: expected True or False, got {keepdims!r}")
        return check_axis(self.caller, axis), bool(keepdims)

    def output_shape(
        self,
        sizes: Mapping[str, int],
        arrays: Sequence[Shaped | None],
        options: Mapping[str, object],
    ) -> Lengths:
        x = arrays[0]
        assert x is not None
        return reduced(self.caller, x.shape, *self._axis_and_keepdims(options)).shape

    def _checked(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> tuple[dict[str, Array], Axes, Dtype, list[Lengths | None]]:
        """Return arrays by name, axes, dtype and the shapes of the requested outputs."""
        _, split = self._split(given)
        axis, keepdims = self._axis_and_keepdims(options)
        names = self._wants(wanted, split)
        dtype, arrays = check_arrays(self.caller, self.slots, split)
        held = self._by_name(arrays)
        axes = reduced(self.caller, held["x"].shape, axis, keepdims)
        shapes = {"x": held["x"].shape, "gy": axes.shape}
        self._expect(arrays, shapes)
        return held, axes, dtype, self._shapes(names, shapes)

    def _by_name(self, arrays: Sequence[object]) -> dict[str, Array]:
        """Return the arrays that are given."""
        named = zip((slot.name for slot in self.slots), arrays, strict=True)
        return {name: array for name, array in named if isinstance(array, np.ndarray)}

    def _make_plan(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> Plan:
        held, axes, dtype, outputs = self._checked(given, options, wanted)
        x = held["x"]
        operands = {
            kernel_name(name): axes.strides(a) if name == "gy" else (a.shape, element_strides(a))
            for name, a in held.items()
        }
        inner = {"y": axes.keep, "gx": x.shape, "dx": x.shape, "dgy": axes.keep}
        mean = self.function == "mean"
        return plan_call(
            self._variants,
            self.kernel,
            "share" if mean and self.name == "backward" else "positive",
            x.shape,
            operands,
            {
                kernel_name(name): inner[name]
                for name, shape in zip(self.outputs, outputs, strict=True)
                if shape is not None
            },
            dtype,
            outputs,
            constant=float(axes.terms),
            divisor=axes.terms if mean else 1.0,
            fill=math.nan if mean and self.name == "forward" else 0.0,
            half=self.half,
        )


class ExtremePhase(ReductionPhase):
    """Phase of max or min; all elements equal to the extreme share its gradient equally."""

    def __init__(self, operator: Operator, name: str, half: str = "") -> None:
        super().__init__(operator, name, half)
        if name != "forward":
            self.kernel = f"extreme_{self.kernel}"  # a sequence of other kernels

    @functools.cached_property
    def rows(self) -> frozenset[str]:
        return super().rows if self.name == "forward" else frozenset()

    def _make_plan(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> Plan:
        held, axes, dtype, outputs = self._checked(given, options, wanted)
        x = held["x"]
        if axes.terms == 0:
            raise ValueError(f"{self.caller}: x: expected elements along axis, got shape {x.shape}")
        plan = plan_call(
            compiled(DECLARATION, "forward", self.half),
            "forward",
            "positive",
            x.shape,
            {"x1": (x.shape, element_strides(x))},
            {"y": axes.keep},
            dtype,
            outputs,
            operation=self.function,
            half=self.half,
        )
        if self.name == "forward":
            return plan
        made = [name for name, s in zip(self.outputs, outputs, strict=True) if s is not None]
        return replace(
            plan,
            constants=(axes.keep, OPERATIONS[self.function]),
            names=("keep", "operation", "threads", "accumulate", *held, *made),
        )

    def _execute(
        self,
        plan: Plan,
        given: Sequence[object],
        options: Options,
        rows: Options,
        out: Sequence[Array | None] | None,
        accumulate: bool,
    ) -> tuple[Array | None, ...]:
        if self.name == "forward":
            return super()._execute(plan, given, options, rows, out, accumulate)
        results = self._derivatives(given, options, plan)
        if out is None:
            return tuple(results)
        if accumulate:
            pairs = zip(results, out, strict=True)
            results = [r if r is None or o is None else o + r for r, o in pairs]
        return hand_over(results, out)

    def _derivatives(
        self, given: Sequence[object], options: Options, plan: Plan
    ) -> list[Array | None]:
        """Return the outputs that the plan has a shape for, by a mask of the extreme elements."""
        held = self._by_name(self._split(given)[1])
        x, g, h = held["x"], held.get("gy"), held.get("hx")
        y = OPERATORS[self.function](x, axis=options.get("axis"), keepdims=True)
        one = np.broadcast_to(np.ones((), x.dtype), x.shape)
        _, number = SELECT.backward(x, y, one, wanted=("x2",))
        assert number is not None
        results = [None if s is None else np.zeros(s, x.dtype) for s in plan.outputs]
        if self.name == "backward" and g is not None and results[0] is not None:
            shares = np.broadcast_to(g.reshape(y.shape) / number, x.shape)
            results[0] = SELECT.backward(x, y, shares, wanted=("x1",))[0]
        last = results[-1]
        if self.name != "backward" and h is not None and last is not None:
            _, total = SELECT.backward(x, y, h, wanted=("x2",))
            assert total is not None
            last[...] = np.divide(total, number).reshape(last.shape)
        return results


class Reduction(Operator):
    """Operator that reduces axes."""

    declaration = DECLARATION

    def _make_phase(self, name: str) -> Phase:
        kind = ExtremePhase if self.name in ("max", "min") else ReductionPhase
        return kind(self, name)
