"""Differences of the features of source and destination of each entry, on a device."""

from __future__ import annotations

from typing import Any

from .. import _neighbours as neighbours
from .._neighbours import Columns, Rows
from .._runtime import Runtime
from .._written import Written


def _subtract(rt: Runtime, a: Any, x_src: Any, x_dst: Any, name: str, written: Written) -> None:
    """Store the difference of two operands, of which one may be None, for each entry."""
    y = Columns(getattr(a, name), a.width, 0)
    if x_src is not None:
        rows = Rows(0, a.num_entries, None, a.in_nodes)
        neighbours.take(rt, rows, a.in_order, x_src, y, written(name))
    if x_dst is not None:
        rows = Rows(0, a.num_entries, None, neighbours.owners(a))
        neighbours.take(rt, rows, a.in_order, -x_dst, y, written(name))
    written.clear(name)


def forward(rt: Runtime, a: Any) -> None:
    _subtract(rt, a, a.x_src, a.x_dst, "y", Written(a))


def backward(rt: Runtime, a: Any) -> None:
    gy = Columns(a.gy, a.width, 0)
    if a.wanted & 1:
        rows = neighbours.out_of(a, edges=a.in_order[a.out_entries - 1])
        neighbours.add(rt, rows, gy, a.width, Columns(a.gx_src, a.width, 0), a.accumulate)
    if a.wanted & 2:
        sums = rt.empty((a.num_dst, a.width), a.gy.dtype)
        rows = neighbours.into(a, edges=a.in_order)
        neighbours.add(rt, rows, gy, a.width, Columns(sums, a.width, 0), False)
        a.gx_dst[...] = a.gx_dst - sums if a.accumulate else -sums


def double_backward(rt: Runtime, a: Any) -> None:
    written = Written(a)
    if a.wanted & 4:
        x_src, x_dst = (getattr(a, f"hx_{end}") for end in ("src", "dst"))
        _subtract(rt, a, x_src if a.given & 1 else None, x_dst if a.given & 2 else None, "dgy",
                  written)  # fmt: skip
    written.finish("dx_src", "dx_dst")
