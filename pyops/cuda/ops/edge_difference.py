"""Differences of the features of source and destination of each entry, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._arguments import Written
from .._array import DeviceArray, required
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from .._declared import EdgeDifference
    from .._runtime import Runtime


def _subtract(
    rt: Runtime, a: EdgeDifference, x_src: DeviceArray | None, x_dst: DeviceArray | None,
    y: DeviceArray,
) -> None:  # fmt: skip
    """Store the difference of two operands, of which one may be None, for each entry."""
    written, out = Written(a), Columns(y, a.width)
    if x_src is not None:
        rows = Rows(0, a.num_entries, None, a.in_nodes)
        neighbours.gather(rt, rows, a.in_order, x_src, out, written("y"))
    if x_dst is not None:
        rows = Rows(0, a.num_entries, None, neighbours.owners(a.graph))
        neighbours.gather(rt, rows, a.in_order, -x_dst, out, written("y"))
    written.clear("y", y)


def forward(rt: Runtime, a: EdgeDifference) -> None:
    """Compute y."""
    _subtract(rt, a, a.x_src, a.x_dst, a.y)


def backward(rt: Runtime, a: EdgeDifference) -> None:
    """Compute gx_src and gx_dst, as requested."""
    if a.gx_src is not None:
        rows = neighbours.outgoing(a.graph, edges=a.in_order[a.out_entries - 1])
        neighbours.add_table(rt, rows, required(a.gy), a.gx_src, a.accumulate)
    if a.gx_dst is not None:
        sums = rt.empty((a.num_dst, a.width), a.gx_dst.dtype)
        rows = neighbours.incoming(a.graph, edges=a.in_order)
        neighbours.add_table(rt, rows, required(a.gy), sums, False)
        a.gx_dst[...] = a.gx_dst - sums if a.accumulate else -sums


def double_backward(rt: Runtime, a: EdgeDifference) -> None:
    """Compute dgy if requested; dx_src and dx_dst are 0."""
    if a.dgy is not None:
        _subtract(rt, a, a.hx_src, a.hx_dst, a.dgy)
    Written(a).finish("dx_src", "dx_dst")
