"""Elementwise functions and reductions, with the layouts that the host computes."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..._call.broadcast import Strides, make_layout, packed, spread
from ..._functions import CODES, FORMS, FUNCTIONS
from .._runtime import Runtime

OPERANDS = "x1", "x2", "gy", "hx1", "hx2"
THREADS = 256
ENOUGH = 1024
"""Blocks that fill any device."""


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    _walk(rt, a, OPERANDS[:2], ["y"], [1])


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    _walk(rt, a, OPERANDS[:3], ["gx1", "gx2"], [2, 3])


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    forms = [6 + a.given, 9 + a.given, 3 + a.given] if a.given else [0, 0, 0]
    _walk(rt, a, OPERANDS, ["dx1", "dx2", "dgy"], forms)


def extreme_backward(rt: Runtime, a: SimpleNamespace) -> None:
    """Share the gradient equally among the elements that attain the extreme."""
    if a.gx is None:
        return
    if a.gy is None:
        a.gx[...] = a.gx if a.accumulate else 0
        return
    winners = _Winners(rt, a)
    shares = a.gy.reshape(-1) / winners.number
    winners.select(winners.x, winners.y, shares, a.gx, a.accumulate)


def extreme_double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    if a.dx is not None and not a.accumulate:
        a.dx[...] = 0
    if a.dgy is None:
        return
    mean: Any = 0
    if a.hx is not None:
        winners = _Winners(rt, a)
        mean = (winners.add(a.hx, winners.x) / winners.number).reshape(a.dgy.shape)
    a.dgy[...] = a.dgy + mean if a.accumulate else mean


class _Winners:
    """Extreme of each row, and the number of elements that attain it."""

    def __init__(self, rt: Runtime, a: SimpleNamespace) -> None:
        self.rt, self.a = rt, a
        shape = a.x.shape
        self.x, self.y = packed(shape), spread(shape, a.keep, packed(a.keep))
        self.extreme = self._empty()
        arguments = [a.x, None, None, None, None]
        way = self._way(self.y, self.y)
        _result(rt, self._call("positive", a.operation, False), way, arguments, self.extreme, 1)
        self.number = self.add(a.table(np.ones(1, a.x.dtype)), (0,) * len(shape))

    def _empty(self) -> Any:
        return self.rt.empty(math.prod(self.a.keep), self.a.x.dtype)

    def _way(self, gradient: Strides, result: Strides) -> Way:
        table = make_layout(self.a.x.shape, (self.x, self.y, gradient, result), 1).table.T
        return _way(table.tobytes(), table.shape, 3, 0)

    def _call(self, function: str, operation: int, accumulate: bool) -> SimpleNamespace:
        return SimpleNamespace(
            table=self.a.table, code=CODES[function], constant=0.0, divisor=1.0,
            operation=operation, accumulate=accumulate,
        )  # fmt: skip

    def select(
        self, result: Strides, gradient: Strides, values: Any, out: Any, accumulate: bool = False
    ) -> None:
        """Sum `values` along `result`, over the elements that attain the extreme."""
        given = [self.a.x, self.extreme, values, None, None]
        call = self._call("select", 1, accumulate)
        _result(self.rt, call, self._way(gradient, result), given, out, 2)

    def add(self, values: Any, strides: Strides) -> Any:
        """Return the row sums of `values` over the elements that attain the extreme."""
        sums = self._empty()
        self.select(self.y, strides, values, sums)
        return sums


def _walk(
    rt: Runtime, a: SimpleNamespace, operands: tuple[str, ...], results: list[str], forms: list[int]
) -> None:
    """Compute all requested results, each in a pass of its own."""
    table = np.ascontiguousarray(a.layout)
    read = [getattr(a, name) if a.present >> i & 1 else None for i, name in enumerate(operands)]
    read += [None] * (len(OPERANDS) - len(operands))
    for bit, (name, form) in enumerate(zip(results, forms, strict=True)):
        if not a.wanted >> bit & 1:
            continue
        needed = _needed(a.code, form)
        some = [x if letter in needed else None for letter, x in zip("xyghk", read, strict=True)]
        way = _way(table.tobytes(), table.shape, len(operands), bit)
        _result(rt, a, way, some, getattr(a, name), form)


class Way(NamedTuple):
    """Axes of the iteration space for one result: kept axes, and axes that it is summed along."""

    kept: Any
    gone: Any
    elements: int
    terms: int
    across: int
    """Adjacent elements per block in a reduction; the other threads of it share the terms."""
    parts: int


@functools.lru_cache(maxsize=10_000)
def _way(data: bytes, shape: tuple[int, int], operands: int, bit: int) -> Way:
    table = np.frombuffer(data, np.int64).reshape(shape)
    axes = np.zeros((len(table), 2 + len(OPERANDS)), np.int64)
    axes[:, : 1 + operands] = table[:, : 1 + operands]
    axes[:, -1] = table[:, 1 + operands + bit]
    goes = (axes[:, -1] == 0) & (axes[:, 0] > 1)
    kept, gone = axes[~goes], axes[goes]
    elements, terms = (math.prod(some[:, 0].tolist()) for some in (kept, gone))
    across = 32 if len(gone) and not goes[-1] and kept[-1, 0] > 1 else 1
    columns = -(-elements // across)
    parts = max(1, min(-(-terms * across // (16 * THREADS)), -(-ENOUGH // max(1, columns))))
    return Way(kept, gone, elements, terms, across, parts)


@functools.cache
def _needed(code: int, form: int) -> frozenset[str]:
    """Return the operands that a form of a function depends on."""
    function = FUNCTIONS[code - 1]
    return frozenset(function.variables(FORMS[form - 1](function)) if form else ())


def _result(
    rt: Runtime, a: SimpleNamespace, way: Way, read: list[Any], out: Any, form: int
) -> None:
    kept = a.table(way.kept)
    number = float(a.constant)
    if not len(way.gone):
        held = [kept, *read, out, len(way.kept), way.elements, form, number, a.accumulate]
        grid = -(-way.elements // (4 * THREADS))
        rt.launch("elementwise", "map", out.dtype, grid, THREADS, held, CODE=a.code)
        return
    found = rt.empty((way.parts, way.elements), np.float64)
    each = -(-way.terms // way.parts)
    sizes = len(way.kept), len(way.gone), way.elements, way.terms, each, form, number, a.operation
    held = [kept, a.table(way.gone), *read, found, *sizes]
    columns, down = -(-way.elements // way.across), THREADS // way.across
    rt.launch(
        "elementwise",
        "reduce",
        out.dtype,
        (columns, way.parts),
        (way.across, down),
        held,
        CODE=a.code,
    )
    divisor = a.table(np.array([a.divisor], np.float64))
    held = [kept, found, out, len(way.kept), way.elements, way.parts, a.operation, divisor]
    held.append(a.accumulate)
    rt.launch(
        "elementwise", "settle", out.dtype, -(-way.elements // THREADS), THREADS, held, CODE=a.code
    )
