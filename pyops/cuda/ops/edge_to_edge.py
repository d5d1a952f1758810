"""Sums over the edges into each edge's source, without its own reverse, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._arguments import Written
from .._array import DeviceArray, real_type, required
from .._neighbours import THREADS, Rows, grid_of, lanes_of

if TYPE_CHECKING:
    from .._declared import EdgeToEdge
    from .._runtime import Runtime

BUT_IMAGE = 2


def _sum(
    rt: Runtime, a: EdgeToEdge, rows: Rows, ends: DeviceArray, h: DeviceArray, y: DeviceArray,
    accumulate: bool,
) -> None:  # fmt: skip
    """Sum h over rows, and from these sums compute y of the edges that end there."""
    sums = rt.empty((rows.count, a.width), real_type(h.dtype))
    neighbours.add_table(rt, rows, h, sums, False)
    args = (
        a.num_edges, a.id_offsets, a.id_entries, ends, rows.count, rows.offsets, rows.edges,
        a.reverse if a.exclude == BUT_IMAGE else None, h, sums, a.width, accumulate, y,
    )  # fmt: skip
    grid, lanes = grid_of(a.num_edges, a.width), lanes_of(a.width)
    rt.launch("neighbours", "pass_on", h.dtype, grid, THREADS, args, LANES=lanes)


def _incoming(rt: Runtime, a: EdgeToEdge, h: DeviceArray, y: DeviceArray, accumulate: bool) -> None:
    rows = neighbours.incoming(a.graph, edges=a.in_edges)
    _sum(rt, a, rows, a.in_nodes, h, y, accumulate)


def forward(rt: Runtime, a: EdgeToEdge) -> None:
    """Compute y."""
    _incoming(rt, a, a.h, a.y, a.accumulate)


def backward(rt: Runtime, a: EdgeToEdge) -> None:
    """Compute gh if requested."""
    if a.gh is not None:
        rows, ends = neighbours.outgoing(a.graph, edges=a.out_edges), neighbours.owners(a.graph)
        _sum(rt, a, rows, ends, required(a.gy), a.gh, a.accumulate)


def double_backward(rt: Runtime, a: EdgeToEdge) -> None:
    """Compute dgy if requested; dh is 0."""
    written = Written(a)
    if a.hh is not None and a.dgy is not None:
        _incoming(rt, a, a.hh, a.dgy, written("dgy"))
    written.finish("dh", "dgy")
