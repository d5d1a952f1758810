"""Entry features from the features of edge, source and destination, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._arguments import Written
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._array import DeviceArray
    from .._declared import EdgeUpdate
    from .._runtime import Runtime

CONCAT = 1
ENDS = "x_src", "x_dst", "edge"


def _parts(a: EdgeUpdate) -> dict[str, slice]:
    """Return the columns of each part, in the order edge, source, destination."""
    if a.mode != CONCAT:
        return dict.fromkeys(ENDS, slice(0, a.out_width))
    edge, src = a.edge_width, a.edge_width + a.src_width
    stop = src + a.dst_width
    return {"x_src": slice(edge, src), "x_dst": slice(src, stop), "edge": slice(0, edge)}


def _store(
    rt: Runtime, a: EdgeUpdate, tables: Mapping[str, DeviceArray | None], y: DeviceArray
) -> None:
    """Store every entry's features, or their tangents."""
    parts, written = _parts(a), Written(a)
    rows = {
        "x_src": Rows(0, a.num_entries, None, a.in_nodes),
        "x_dst": Rows(0, a.num_entries, None, neighbours.owners(a.graph)),
        "edge": Rows(0, a.num_entries, None, None, a.in_edges),
    }
    for name, table in tables.items():
        part = "y" if a.mode != CONCAT else name
        if table is not None:
            out = Columns(y, a.out_width, parts[name].start)
            neighbours.gather(rt, rows[name], a.in_order, table, out, written(part))
        elif a.mode == CONCAT:
            written.clear(part, y[:, parts[name]])
    if a.mode != CONCAT:
        written.clear("y", y)


def forward(rt: Runtime, a: EdgeUpdate) -> None:
    """Compute y."""
    _store(rt, a, {"x_src": a.x_src, "x_dst": a.x_dst, "edge": a.edge}, a.y)


def backward(rt: Runtime, a: EdgeUpdate) -> None:
    """Compute gx_src, gx_dst and gedge, as requested."""
    order = a.in_order
    for name, columns in _parts(a).items():
        out = a.array(f"g{name}")
        if out is None:
            continue
        if name == "x_src":
            rows = neighbours.outgoing(a.graph, edges=order[a.out_entries - 1])
        elif name == "x_dst":
            rows = neighbours.incoming(a.graph, edges=order)
        else:
            positions = order[a.id_entries[: a.num_entries] - 1]
            rows = neighbours.of_edges(a.graph, edges=positions)
        width, table = out.shape[1], Columns(a.gy, a.out_width, columns.start)
        neighbours.add(rt, rows, table, width, Columns(out, width), a.accumulate)


def double_backward(rt: Runtime, a: EdgeUpdate) -> None:
    """Compute dgy if requested; dx_src, dx_dst and dedge are 0."""
    Written(a).finish(*(f"d{name}" for name in ENDS))
    if a.dgy is not None:
        _store(rt, a, {"x_src": a.hx_src, "x_dst": a.hx_dst, "edge": a.hedge}, a.dgy)
