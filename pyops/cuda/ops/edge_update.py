"""Entry features from the features of edge, source and destination, on a device."""

from __future__ import annotations

from typing import Any

from .. import _neighbours as neighbours
from .._neighbours import Columns, Rows
from .._runtime import Runtime
from .._written import Written

CONCAT = 1
ENDS = "x_src", "x_dst", "edge"


def _firsts(a: Any) -> dict[str, int]:
    """Return the first column of each part, in the order edge, source, destination."""
    if a.mode != CONCAT:
        return dict.fromkeys(ENDS, 0)
    return {"edge": 0, "x_src": a.edge_width, "x_dst": a.edge_width + a.src_width}


def _width(a: Any, name: str) -> int:
    return int(a.edge_width if name == "edge" else getattr(a, f"{name[2:]}_width"))


def _lay(rt: Runtime, a: Any, prefix: str, held: int, y: Any, written: Written) -> None:
    """Store every entry's features, or their tangents, for the parts in the bit mask `held`."""
    firsts = _firsts(a)
    for bit, name in enumerate(ENDS):
        width = _width(a, name)
        part = "y" if a.mode != CONCAT else f"y {name}"
        if held >> bit & 1:
            rows = {
                "x_src": Rows(0, a.num_entries, None, a.in_nodes),
                "x_dst": Rows(0, a.num_entries, None, neighbours.owners(a)),
                "edge": Rows(0, a.num_entries, None, None, a.in_edges),
            }[name]
            place = Columns(y, a.out_width, firsts[name])
            table = getattr(a, prefix + name)
            neighbours.take(rt, rows, a.in_order, table, place, written(part))
        elif width and a.mode == CONCAT:
            written.clear(part, y[:, firsts[name] : firsts[name] + width])
    if a.mode != CONCAT:
        written.clear("y", y)


def forward(rt: Runtime, a: Any) -> None:
    _lay(rt, a, "", a.present, a.y, Written(a))


def backward(rt: Runtime, a: Any) -> None:
    firsts, order = _firsts(a), a.in_order
    for bit, name in enumerate(ENDS):
        if not a.wanted >> bit & 1:
            continue
        width = _width(a, name)
        if name == "x_src":
            rows = neighbours.out_of(a, edges=order[a.out_entries - 1])
        elif name == "x_dst":
            rows = neighbours.into(a, edges=order)
        else:
            rows = neighbours.of_edges(a, edges=order[a.id_entries[: a.num_entries] - 1])
        table, place = Columns(a.gy, a.out_width, firsts[name]), getattr(a, f"g{name}")
        neighbours.add(rt, rows, table, width, Columns(place, width, 0), a.accumulate)


def double_backward(rt: Runtime, a: Any) -> None:
    written = Written(a)
    written.finish(*(f"d{name}" for name in ENDS))
    if a.wanted & 8:
        _lay(rt, a, "h", a.given, a.dgy, written)
