"""Elementwise functions and reductions, with the layouts that the host computes."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..._call.broadcast import Strides, make_layout, packed, spread
from ..._call.elementwise import is_zero
from ..._functions import CODES, FORMS, FUNCTIONS
from .._arguments import Arguments, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._array import DeviceArray
    from .._runtime import Runtime

OPERANDS = "x1", "x2", "gy", "hx1", "hx2"
THREADS = 256
ENOUGH = 1024
"""Blocks that fill any device."""


class Elementwise(Arguments):
    """Arguments of a function of the table, beside operands and results."""

    code: int
    operation: int
    constant: float
    divisor: float
    present: int
    wanted: int
    given: int
    layout: npt.NDArray[np.int64]


class Softmax(Arguments):
    """Arguments of softmax and its logarithm, for arrays [outer, length, inner]."""

    outer: int
    length: int
    inner: int
    logarithm: int
    wanted: int
    x: DeviceArray
    gy: DeviceArray | None
    hx: DeviceArray | None


class Extreme(Arguments):
    """Arguments of the derivatives of an extreme."""

    operation: int
    keep: tuple[int, ...]
    x: DeviceArray
    gy: DeviceArray | None
    hx: DeviceArray | None
    gx: DeviceArray | None
    dx: DeviceArray | None
    dgy: DeviceArray | None


class Pass(NamedTuple):
    """A function, and how its values become a result."""

    code: int
    operation: int
    constant: float
    divisor: float
    accumulate: bool
    table: Table


def forward(rt: Runtime, a: Elementwise) -> None:
    """Compute y."""
    _evaluate(rt, a, OPERANDS[:2], ["y"], [1])


def backward(rt: Runtime, a: Elementwise) -> None:
    """Compute gx1 and gx2, as requested."""
    _evaluate(rt, a, OPERANDS[:3], ["gx1", "gx2"], [2, 3])


def double_backward(rt: Runtime, a: Elementwise) -> None:
    """Compute dx1, dx2 and dgy, as requested."""
    _clear(a)
    forms = [6 + a.given, 9 + a.given, 3 + a.given] if a.given else [0, 0, 0]
    _evaluate(rt, a, OPERANDS, ["dx1", "dx2", "dgy"], forms)


def softmax_forward(rt: Runtime, a: Softmax) -> None:
    """Compute y."""
    x = _along(a, a.x)
    shifted = x - x.max(axis=1, keepdims=True)
    powers = rt.xp.exp(shifted)
    total = _sum(powers)
    y = _along(a, a.array("y"))
    found = shifted - rt.xp.log(total) if a.logarithm else powers / total
    y[...] = y + found if a.accumulate else found


def softmax_vjps(rt: Runtime, a: Softmax) -> None:
    """Compute gx, dx and dgy, as requested."""
    _clear(a)
    x = _along(a, a.x)
    p = rt.xp.exp(x - x.max(axis=1, keepdims=True))
    p /= _sum(p)
    found: dict[str, DeviceArray] = {}
    if a.gy is not None:
        g = _along(a, a.gy)
        by_g = _sum(g if a.logarithm else p * g)
        found["gx"] = g - p * by_g if a.logarithm else p * (g - by_g)
    if a.hx is not None:
        h = _along(a, a.hx)
        along_h = h - _sum(p * h)
        found["dgy"] = along_h if a.logarithm else p * along_h
        if a.gy is not None:
            both = along_h * (-by_g if a.logarithm else g - by_g)
            found["dx"] = p * (both if a.logarithm else both - _sum(p * both))
    for bit, name in enumerate(("gx", "dx", "dgy")):
        if a.wanted >> bit & 1:
            out = _along(a, a.array(name))
            out[...] = out + found[name] if a.accumulate else found[name]


def _along(a: Softmax, array: DeviceArray | None) -> DeviceArray:
    """Return an array as [outer, length, inner]."""
    assert array is not None
    return array.reshape(a.outer, a.length, a.inner)


def _sum(array: DeviceArray) -> DeviceArray:
    """Return sums along the axis, made in float64."""
    return array.sum(axis=1, keepdims=True, dtype="float64").astype(array.dtype)


def _clear(a: Arguments) -> None:
    """Set the outputs to 0 that a plan names as such."""
    for name, array in vars(a).items():
        if is_zero(name) and not a.accumulate:
            array[...] = 0


def extreme_backward(rt: Runtime, a: Extreme) -> None:
    """Share the gradient equally among the elements that attain the extreme."""
    if a.gx is None:
        return
    if a.gy is None:
        a.gx[...] = a.gx if a.accumulate else 0
        return
    extremes = _Extremes(rt, a)
    shares = a.gy.reshape(-1) / extremes.count
    extremes.select(extremes.x, extremes.y, shares, a.gx, a.accumulate)


def extreme_double_backward(rt: Runtime, a: Extreme) -> None:
    """Compute dgy, the mean of hx over the elements that attain the extreme; dx is 0."""
    if a.dx is not None and not a.accumulate:
        a.dx[...] = 0
    if a.dgy is None:
        return
    mean: DeviceArray | int = 0
    if a.hx is not None:
        extremes = _Extremes(rt, a)
        mean = (extremes.sum(a.hx, extremes.x) / extremes.count).reshape(a.dgy.shape)
    a.dgy[...] = a.dgy + mean if a.accumulate else mean


class _Extremes:
    """Extreme of each row, and the number of elements that attain it."""

    def __init__(self, rt: Runtime, a: Extreme) -> None:
        self.rt, self.a = rt, a
        shape = a.x.shape
        self.x, self.y = packed(shape), spread(shape, a.keep, packed(a.keep))
        self.values = self._empty()
        axes, operands = self._axes(self.y, self.y), [a.x, None, None, None, None]
        _compute(rt, self._pass("positive", a.operation), axes, operands, self.values, 1)
        self.count = self.sum(a.table(np.ones(1, a.x.dtype)), (0,) * len(shape))

    def _empty(self) -> DeviceArray:
        return self.rt.empty(math.prod(self.a.keep), self.a.x.dtype)

    def _axes(self, gradient: Strides, result: Strides) -> Axes:
        table = make_layout(self.a.x.shape, (self.x, self.y, gradient, result), 1).table.T
        return _axes(table.tobytes(), table.shape, 3, 0)

    def _pass(self, function: str, operation: int, accumulate: bool = False) -> Pass:
        return Pass(CODES[function], operation, 0.0, 1.0, accumulate, self.a.table)

    def select(
        self, result: Strides, gradient: Strides, values: DeviceArray, out: DeviceArray,
        accumulate: bool = False,
    ) -> None:  # fmt: skip
        """Sum `values` along `result`, over the elements that attain the extreme."""
        operands = [self.a.x, self.values, values, None, None]
        axes = self._axes(gradient, result)
        _compute(self.rt, self._pass("select", 1, accumulate), axes, operands, out, 2)

    def sum(self, values: DeviceArray, strides: Strides) -> DeviceArray:
        """Return the row sums of `values` over the elements that attain the extreme."""
        sums = self._empty()
        self.select(self.y, strides, values, sums)
        return sums


def _evaluate(
    rt: Runtime, a: Elementwise, operands: Sequence[str], results: list[str], forms: list[int]
) -> None:
    """Compute all requested results, each in a pass of its own."""
    table = np.ascontiguousarray(a.layout)
    read = [_operand(a, name) if a.present >> i & 1 else None for i, name in enumerate(operands)]
    read += [None] * (len(OPERANDS) - len(operands))
    function = Pass(a.code, a.operation, a.constant, a.divisor, a.accumulate, a.table)
    for bit, (name, form) in enumerate(zip(results, forms, strict=True)):
        out = a.array(name) if a.wanted >> bit & 1 else None
        if out is None:
            continue
        needed = _needed(a.code, form)
        some = [x if letter in needed else None for letter, x in zip("xyghk", read, strict=True)]
        axes = _axes(table.tobytes(), table.shape, len(operands), bit)
        _compute(rt, function, axes, some, out, form)


def _operand(a: Elementwise, name: str) -> DeviceArray | None:
    """Return an operand; those that options give are copied to the device."""
    found: DeviceArray | npt.NDArray[np.generic] | None = a.array(name)
    return a.table(found) if isinstance(found, np.ndarray) else found


class Axes(NamedTuple):
    """Axes of the iteration space for one result: kept axes, and axes that it is summed along."""

    kept: npt.NDArray[np.int64]
    reduced: npt.NDArray[np.int64]
    elements: int
    terms: int
    across: int
    """Adjacent elements per block in a reduction; the other threads of it share the terms."""
    parts: int


@functools.lru_cache(maxsize=10_000)
def _axes(data: bytes, shape: tuple[int, ...], operands: int, bit: int) -> Axes:
    table = np.frombuffer(data, np.int64).reshape(shape)
    axes = np.zeros((len(table), 2 + len(OPERANDS)), np.int64)
    axes[:, : 1 + operands] = table[:, : 1 + operands]
    axes[:, -1] = table[:, 1 + operands + bit]
    summed = (axes[:, -1] == 0) & (axes[:, 0] > 1)
    kept, reduced = axes[~summed], axes[summed]
    elements, terms = (math.prod(some[:, 0].tolist()) for some in (kept, reduced))
    across = 32 if len(reduced) and not summed[-1] and kept[-1, 0] > 1 else 1
    columns = -(-elements // across)
    parts = max(1, min(-(-terms * across // (16 * THREADS)), -(-ENOUGH // max(1, columns))))
    return Axes(kept, reduced, elements, terms, across, parts)


@functools.cache
def _needed(code: int, form: int) -> frozenset[str]:
    """Return the operands that a form of a function depends on."""
    function = FUNCTIONS[code - 1]
    return frozenset(function.variables(FORMS[form - 1](function)) if form else ())


def _compute(
    rt: Runtime, function: Pass, axes: Axes, operands: Sequence[DeviceArray | None],
    out: DeviceArray, form: int,
) -> None:  # fmt: skip
    """Compute one result."""
    code, operation, constant, divisor, accumulate, table = function
    kept, number = table(axes.kept), float(constant)
    rank, elements = len(axes.kept), axes.elements
    if not len(axes.reduced):
        args = kept, *operands, out, rank, elements, form, number, accumulate
        grid = -(-elements // (4 * THREADS))
        rt.launch("elementwise", "map", out.dtype, grid, THREADS, args, CODE=code)
        return
    partial = rt.empty((axes.parts, elements), "float64")
    sizes = rank, len(axes.reduced), elements, axes.terms, -(-axes.terms // axes.parts)
    args = kept, table(axes.reduced), *operands, partial, *sizes, form, number, operation
    columns, block = -(-elements // axes.across), (axes.across, THREADS // axes.across)
    rt.launch("elementwise", "reduce", out.dtype, (columns, axes.parts), block, args, CODE=code)
    divisors = table(np.array([divisor], np.float64))
    args = kept, partial, out, rank, elements, axes.parts, operation, divisors, accumulate
    rt.launch("elementwise", "settle", out.dtype, -(-elements // THREADS), THREADS, args, CODE=code)
