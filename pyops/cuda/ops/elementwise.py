"""Elementwise functions and reductions, from the layouts that the host makes."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..._functions import FORMS, FUNCTIONS
from .._runtime import Runtime

OPERANDS = "x1", "x2", "gy", "hx1", "hx2"
ENOUGH = 1024
"""Blocks that keep any device busy."""


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    _walk(rt, a, OPERANDS[:2], ["y"], [1])


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    _walk(rt, a, OPERANDS[:3], ["gx1", "gx2"], [2, 3])


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    forms = [6 + a.given, 9 + a.given, 3 + a.given] if a.given else [0, 0, 0]
    _walk(rt, a, OPERANDS, ["dx1", "dx2", "dgy"], forms)


def _walk(
    rt: Runtime, a: SimpleNamespace, operands: tuple[str, ...], results: list[str], forms: list[int]
) -> None:
    """All results that are wanted, each in a pass of its own."""
    table = np.asarray(a.layout)
    read = [getattr(a, name) if a.present >> i & 1 else None for i, name in enumerate(operands)]
    read += [None] * (len(OPERANDS) - len(operands))
    for bit, (name, form) in enumerate(zip(results, forms, strict=True)):
        if not a.wanted >> bit & 1:
            continue
        axes = np.zeros((len(table), 2 + len(OPERANDS)), np.int64)
        axes[:, : 1 + len(operands)] = table[:, : 1 + len(operands)]
        axes[:, -1] = table[:, 1 + len(operands) + bit]
        needed = _needed(a.code, form)
        some = [x if letter in needed else None for letter, x in zip("xyghk", read, strict=True)]
        _result(rt, a, axes, some, getattr(a, name), form)


@functools.cache
def _needed(code: int, form: int) -> frozenset[str]:
    """The operands that a form of a function depends on."""
    function = FUNCTIONS[code - 1]
    return frozenset(function.variables(FORMS[form - 1](function)) if form else ())


def _result(
    rt: Runtime, a: SimpleNamespace, axes: Any, read: list[Any], out: Any, form: int
) -> None:
    goes = (axes[:, -1] == 0) & (axes[:, 0] > 1)
    kept, gone = axes[~goes], axes[goes]
    elements, terms = (math.prod(some[:, 0].tolist()) for some in (kept, gone))
    if not len(gone):
        held = [a.table(axes), *read, out, len(axes), elements, form, float(a.constant)]
        grid = -(-elements // 1024)
        rt.launch("elementwise", "map", out.dtype, grid, 256, [*held, a.accumulate], CODE=a.code)
        return
    across = 32 if not goes[-1] and kept[-1, 0] > 1 else 1
    down = 256 // across
    columns = -(-elements // across)
    parts = max(1, min(-(-terms // (16 * down)), -(-ENOUGH // columns)))
    each = -(-terms // parts)
    found = rt.empty((parts, elements), np.float64)
    kept_table, gone_table = a.table(kept), a.table(gone)
    sizes = len(kept), len(gone), elements, terms, each, form, float(a.constant), a.operation
    held = [kept_table, gone_table, *read, found, *sizes]
    rt.launch(
        "elementwise",
        "reduce",
        out.dtype,
        (columns, parts),
        (across, down),
        held,
        CODE=a.code,
    )
    held = [kept_table, found, out, len(kept), elements, parts, a.operation]
    divisor = a.table(np.array([a.divisor], np.float64))
    rt.launch(
        "elementwise",
        "settle",
        out.dtype,
        -(-elements // 256),
        256,
        [*held, divisor, a.accumulate],
        CODE=a.code,
    )
