"""Messages of the entries, reduced by sum, mean, maximum or minimum, on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _neighbours as neighbours
from .._runtime import Runtime
from .._written import Written

MEAN, MAX = 2, 3


@dataclass(frozen=True)
class _Part:
    """Columns of a message that come from the sources or from the edges."""

    name: str
    bit: int
    width: int
    first: int
    of_edges: bool


def _parts(a: Any) -> list[_Part]:
    parts = [
        _Part("x", 0, a.x_width, 0, False),
        _Part("edge", 1, a.edge_width, a.x_width, True),
    ]
    return [part for part in parts if part.width]


def _incoming(a: Any, part: _Part, weight: Any) -> neighbours.Rows:
    nodes, edges = (None, a.in_edges) if part.of_edges else (a.in_nodes, None)
    return neighbours.into(a, nodes=nodes, edges=edges, weighted=a.in_edges, weight=weight)


def _back(a: Any, part: _Part, weight: Any, owners: Any) -> tuple[neighbours.Rows, Any]:
    """Return the entries of each source or edge, with destinations; and their CSC positions."""
    if not part.of_edges:
        more = {"nodes": a.out_nodes, "weighted": a.out_edges, "weight": weight}
        return neighbours.out_of(a, **more), a.out_entries
    nodes, weighted = neighbours.along(a, owners)
    return neighbours.of_edges(a, nodes=nodes, weighted=weighted, weight=weight), a.id_entries


def _weight(a: Any, name: str = "weight", bit: int = 2) -> Any:
    return getattr(a, name) if a.present >> bit & 1 else None


def _lead(a: Any) -> int:
    return int(a.x_width + a.edge_width + a.own_width)


def _add_own(a: Any, own: Any, accumulate: bool, y: Any) -> None:
    if a.own_width:
        columns = y.reshape(a.num_dst, _lead(a))[:, a.x_width + a.edge_width :]
        columns[...] = columns + own if accumulate else own


def forward(rt: Runtime, a: Any) -> None:
    weight = _weight(a)
    for part in _parts(a):
        rows, values = _incoming(a, part, weight), getattr(a, part.name)
        place = neighbours.Columns(a.y, _lead(a), part.first)
        if a.reduce >= MAX:
            neighbours.win(rt, rows, a.reduce == MAX, values, part.width, place, a.accumulate)
        else:
            table = neighbours.Columns(values, part.width, 0)
            mean = a.reduce == MEAN
            neighbours.add(rt, rows, table, part.width, place, a.accumulate, mean=mean)
    _add_own(a, a.own, a.accumulate, a.y)


def _winners(rt: Runtime, a: Any) -> Any:
    """Return the argmax or argmin entries by destination and column; None for sum and mean."""
    if a.reduce < MAX:
        return None
    winners = rt.empty((a.num_dst, _lead(a)), "int64")
    for part in _parts(a):
        place = neighbours.Columns(None, _lead(a), part.first)
        rows, values = _incoming(a, part, _weight(a)), getattr(a, part.name)
        neighbours.win(rt, rows, a.reduce == MAX, values, part.width, place, False, winners)
    return winners


class _Way:
    """VJP from the gradient of y to the message parts, with weights or their tangents."""

    def __init__(self, rt: Runtime, a: Any) -> None:
        self.rt, self.a = rt, a
        self.winners = _winners(rt, a)
        self.owners = neighbours.owners(a)
        self.by_table = a.in_offsets if a.reduce == MEAN else None

    def values(self, part: _Part, weight: Any, out: Any, accumulate: bool) -> None:
        rows, places = _back(self.a, part, weight, self.owners)
        gy = neighbours.Columns(self.a.gy, _lead(self.a), part.first)
        neighbours.add(
            self.rt, rows, gy, part.width, neighbours.Columns(out, part.width, 0), accumulate,
            by_table=self.by_table, winners=self.winners, places=places, back=True,
            lead=_lead(self.a),
        )  # fmt: skip

    def weights(self, part: _Part, values: Any, out: Any, accumulate: bool) -> None:
        a = self.a
        rows = neighbours.of_edges(a, nodes=None if part.of_edges else a.in_nodes)
        neighbours.dot(
            self.rt, rows, a.id_entries, self.owners, a.in_offsets, a.reduce == MEAN,
            self.winners, neighbours.Columns(a.gy, _lead(a), part.first), values, part.width,
            out, accumulate,
        )  # fmt: skip

    def onward(self, part: _Part, weight: Any, values: Any, out: Any, accumulate: bool) -> None:
        """Apply the reduction itself, with the entries of the extremes known."""
        place = neighbours.Columns(out, _lead(self.a), part.first)
        table = neighbours.Columns(values, part.width, 0)
        neighbours.add(
            self.rt, _incoming(self.a, part, weight), table, part.width, place, accumulate,
            mean=self.a.reduce == MEAN, winners=self.winners, lead=_lead(self.a),
        )  # fmt: skip


def backward(rt: Runtime, a: Any) -> None:
    way, written = _Way(rt, a), Written(a)
    for part in _parts(a):
        if a.wanted >> part.bit & 1:
            out = getattr(a, f"g{part.name}")
            way.values(part, _weight(a), out, a.accumulate)
        if a.wanted & 4:
            way.weights(part, getattr(a, part.name), a.gweight, written("gweight"))
    if a.wanted & 8:
        own = a.gy.reshape(a.num_dst, _lead(a))[:, a.x_width + a.edge_width :]
        a.gown[...] = a.gown + own if a.accumulate else own


def double_backward(rt: Runtime, a: Any) -> None:
    way, written = _Way(rt, a), Written(a)
    for part in _parts(a):
        tangent = a.given >> part.bit & 1
        if a.given & 4 and a.wanted >> part.bit & 1:
            name = f"d{part.name}"
            way.values(part, a.hweight, getattr(a, name), written(name))
        if a.given & 4 and a.wanted & 16:
            way.onward(part, a.hweight, getattr(a, part.name), a.dgy, written(f"dgy {part.bit}"))
        if tangent and a.wanted & 16:
            h = getattr(a, f"h{part.name}")
            way.onward(part, _weight(a), h, a.dgy, written(f"dgy {part.bit}"))
        if tangent and a.wanted & 4:
            way.weights(part, getattr(a, f"h{part.name}"), a.dweight, written("dweight"))
    written.finish("dx", "dedge", "dweight", "down")
    if a.wanted & 16:
        for part in _parts(a):
            columns = slice(part.first, part.first + part.width)
            written.clear(f"dgy {part.bit}", a.dgy.reshape(a.num_dst, _lead(a))[:, columns])
        if a.given & 8:
            _add_own(a, a.hown, a.accumulate, a.dgy)
        elif a.own_width:
            columns = slice(a.x_width + a.edge_width, None)
            written.clear("dgy own", a.dgy.reshape(a.num_dst, _lead(a))[:, columns])
