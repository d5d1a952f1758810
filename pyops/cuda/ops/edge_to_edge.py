"""Sums over the edges into each edge's source, without its own reverse, on a device."""

from __future__ import annotations

from typing import Any

from .. import _neighbours as neighbours
from .._neighbours import THREADS, Columns, Rows, blocks, lanes_of
from .._runtime import Runtime
from .._written import Written

BUT_IMAGE = 2


def _pass_on(rt: Runtime, a: Any, rows: Rows, ends: Any, h: Any, y: Any, accumulate: bool) -> None:
    """Sum h over rows, and from these sums compute y of the edges that end there."""
    width = a.width
    into = rt.empty((rows.count, width), h.dtype)
    neighbours.add(rt, rows, Columns(h, width, 0), width, Columns(into, width, 0), False)
    lanes = lanes_of(width)
    args = (
        a.num_edges, a.id_offsets, a.id_entries, ends, rows.count, rows.offsets, rows.edges,
        a.reverse if a.exclude == BUT_IMAGE else None, h, into, width, accumulate, y,
    )  # fmt: skip
    grid = blocks(a.num_edges, lanes), -(-width // 128) if lanes == 32 else 1
    rt.launch("neighbours", "pass_on", h.dtype, grid, THREADS, args, LANES=lanes)


def forward(rt: Runtime, a: Any) -> None:
    _pass_on(rt, a, neighbours.into(a, edges=a.in_edges), a.in_nodes, a.h, a.y, a.accumulate)


def backward(rt: Runtime, a: Any) -> None:
    if a.wanted:
        rows = neighbours.out_of(a, edges=a.out_edges)
        _pass_on(rt, a, rows, neighbours.owners(a), a.gy, a.gh, a.accumulate)


def double_backward(rt: Runtime, a: Any) -> None:
    written = Written(a)
    if a.given and a.wanted & 2:
        rows = neighbours.into(a, edges=a.in_edges)
        _pass_on(rt, a, rows, a.in_nodes, a.hh, a.dgy, written("dgy"))
    written.finish("dh", "dgy")
