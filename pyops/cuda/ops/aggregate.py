"""Messages of the entries, reduced by destination, on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .. import _statistics as statistics
from .._arguments import Written
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from .._array import DeviceArray
    from .._declared import Aggregate
    from .._runtime import Runtime

MEAN, MAX, MEDIAN = 2, 3, 5


@dataclass(frozen=True)
class _Part:
    """Columns of a message that come from the sources or from the edges."""

    name: str
    values: DeviceArray
    first: int
    of_edges: bool

    @property
    def width(self) -> int:
        return self.values.shape[1]


def _parts(a: Aggregate) -> list[_Part]:
    tables = ("x", a.x, 0, False), ("edge", a.edge, a.x_width, True)
    return [
        _Part(name, values, first, of_edges)
        for name, values, first, of_edges in tables
        if values is not None and values.shape[1]
    ]


def _incoming(a: Aggregate, part: _Part, weight: DeviceArray | None) -> Rows:
    nodes, edges = (None, a.in_edges) if part.of_edges else (a.in_nodes, None)
    return neighbours.incoming(
        a.graph, nodes=nodes, edges=edges, weighted=a.in_edges, weight=weight
    )


def _outgoing(a: Aggregate, part: _Part, weight: DeviceArray | None) -> tuple[Rows, DeviceArray]:
    """Return the entries of each source or edge, with destinations; and their CSC positions."""
    if not part.of_edges:
        rows = neighbours.outgoing(a.graph, nodes=a.out_nodes, weighted=a.out_edges, weight=weight)
        return rows, a.out_entries
    nodes, weighted = neighbours.ends_by_edge(a.graph)
    rows = neighbours.of_edges(a.graph, nodes=nodes, weighted=weighted, weight=weight)
    return rows, a.id_entries


def _width(a: Aggregate) -> int:
    return a.x_width + a.edge_width + a.own_width


def _columns(a: Aggregate, y: DeviceArray, first: int, stop: int | None = None) -> DeviceArray:
    return y.reshape(a.num_dst, _width(a))[:, first:stop]


def _own_columns(a: Aggregate, y: DeviceArray | None) -> Columns:
    """Return the columns that come from the destination itself."""
    return Columns(y, _width(a), a.x_width + a.edge_width)


def _add_own(
    rt: Runtime, a: Aggregate, own: DeviceArray | None, accumulate: bool, y: DeviceArray
) -> None:
    if own is not None and a.own_width:
        table = Columns(own, a.own_width)
        neighbours.copy(rt, a.num_dst, table, a.own_width, _own_columns(a, y), accumulate)


def forward(rt: Runtime, a: Aggregate) -> None:
    """Compute y."""
    for part in _parts(a):
        rows, out = _incoming(a, part, a.weight), Columns(a.y, _width(a), part.first)
        if a.reduce > MEDIAN:
            _kept(rt, a, part).reduce(out, a.accumulate)
        elif a.reduce == MEDIAN:
            neighbours.medians(rt, rows, part.values, part.width, out, a.accumulate)
        elif a.reduce >= MAX:
            most = a.reduce == MAX
            neighbours.extremes(rt, rows, most, part.values, part.width, out, a.accumulate)
        else:
            table, mean = Columns(part.values, part.width), a.reduce == MEAN
            neighbours.add(rt, rows, table, part.width, out, a.accumulate, mean=mean)
    _add_own(rt, a, a.own, a.accumulate, a.y)


def _argextremes(rt: Runtime, a: Aggregate) -> DeviceArray | None:
    """Return the entries of extremes or medians by destination and column; None for others."""
    if a.reduce < MAX:
        return None
    found = rt.empty((a.num_dst, _width(a)), "int64")
    for part in _parts(a):
        rows, out = _incoming(a, part, a.weight), Columns(None, _width(a), part.first)
        if a.reduce == MEDIAN:
            neighbours.medians(rt, rows, part.values, part.width, out, False, found)
            continue
        most = a.reduce == MAX
        neighbours.extremes(rt, rows, most, part.values, part.width, out, False, found)
    return found


def _kept(
    rt: Runtime,
    a: Aggregate,
    part: _Part,
    tangents: DeviceArray | None = None,
    hweight: DeviceArray | None = None,
) -> statistics.Messages:
    """Return the messages of a part for reductions that are determined by statistics."""
    number = {statistics.POWERMEAN: a.power, statistics.SOFTMAX: a.temperature}.get(a.reduce, 1.0)
    return statistics.Messages(
        rt, a.graph, a.reduce, number, part.values, part.of_edges, a.weight, tangents, hweight
    )


class _Derivatives:
    """VJP from the gradient of y to the message parts, with weights or their tangents."""

    def __init__(self, rt: Runtime, a: Aggregate) -> None:
        self.rt, self.a, self.mean = rt, a, a.reduce == MEAN
        self.argextremes = _argextremes(rt, a)

    def by_values(
        self, part: _Part, weight: DeviceArray | None, out: DeviceArray, accumulate: bool
    ) -> None:
        a, (rows, positions) = self.a, _outgoing(self.a, part, weight)
        neighbours.add(
            self.rt, rows, Columns(a.gy, _width(a), part.first), part.width,
            Columns(out, part.width), accumulate, by_table=a.in_offsets if self.mean else None,
            argextremes=self.argextremes, positions=positions, backward=True, stride=_width(a),
        )  # fmt: skip

    def by_weight(
        self, part: _Part, values: DeviceArray, out: DeviceArray, accumulate: bool
    ) -> None:
        neighbours.dot(
            self.rt, self.a.graph, part.of_edges, Columns(self.a.gy, _width(self.a), part.first),
            values, part.width, out, accumulate, mean=self.mean, argextremes=self.argextremes,
        )  # fmt: skip

    def reduce(
        self, part: _Part, weight: DeviceArray | None, values: DeviceArray, out: DeviceArray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Apply the reduction itself, with the entries of the extremes known."""
        neighbours.add(
            self.rt, _incoming(self.a, part, weight), Columns(values, part.width), part.width,
            Columns(out, _width(self.a), part.first), accumulate, mean=self.mean,
            argextremes=self.argextremes, stride=_width(self.a),
        )  # fmt: skip


def backward(rt: Runtime, a: Aggregate) -> None:
    """Compute gx, gedge, gweight and gown, as requested."""
    written = Written(a)
    derivatives = _Derivatives(rt, a) if a.reduce <= MEDIAN else None
    for part in _parts(a):
        out = a.array(f"g{part.name}")
        if derivatives is None:
            kept, gy = _kept(rt, a, part), Columns(a.gy, _width(a), part.first)
            kept.find()
            if out is not None:
                kept.by_table(gy, out, a.accumulate)
            if a.gweight is not None:
                kept.by_weight(gy, a.gweight, written("gweight"))
            continue
        if out is not None:
            derivatives.by_values(part, a.weight, out, a.accumulate)
        if a.gweight is not None:
            derivatives.by_weight(part, part.values, a.gweight, written("gweight"))
    if a.gown is not None:
        own, gown = _own_columns(a, a.gy), Columns(a.gown, a.own_width)
        neighbours.copy(rt, a.num_dst, own, a.own_width, gown, a.accumulate)


def double_backward(rt: Runtime, a: Aggregate) -> None:
    """Compute dx, dedge, dweight, down and dgy, as requested."""
    written = Written(a)
    derivatives = _Derivatives(rt, a) if a.reduce <= MEDIAN else None
    for part in _parts(a):
        tangent, out = a.array(f"h{part.name}"), a.array(f"d{part.name}")
        if derivatives is None:
            _along_tangents(rt, a, part, tangent, out, written)
            continue
        if a.hweight is not None and out is not None:
            derivatives.by_values(part, a.hweight, out, written(f"d{part.name}"))
        if a.hweight is not None and a.dgy is not None:
            adds = written(f"dgy {part.name}")
            derivatives.reduce(part, a.hweight, part.values, a.dgy, adds)
        if tangent is not None and a.dgy is not None:
            derivatives.reduce(part, a.weight, tangent, a.dgy, written(f"dgy {part.name}"))
        if tangent is not None and a.dweight is not None:
            derivatives.by_weight(part, tangent, a.dweight, written("dweight"))
    written.finish("dx", "dedge", "dweight", "down")
    if a.dgy is not None:
        for part in _parts(a):
            stop = part.first + part.width
            written.clear(f"dgy {part.name}", _columns(a, a.dgy, part.first, stop))
        if a.hown is not None:
            _add_own(rt, a, a.hown, a.accumulate, a.dgy)
        elif a.own_width:
            written.clear("dgy own", _columns(a, a.dgy, a.x_width + a.edge_width))


def _along_tangents(
    rt: Runtime,
    a: Aggregate,
    part: _Part,
    tangent: DeviceArray | None,
    out: DeviceArray | None,
    written: Written,
) -> None:
    """Differentiate a reduction that is determined by statistics, and its gradients."""
    if tangent is None and a.hweight is None:
        return
    kept = _kept(rt, a, part, tangent, a.hweight)
    kept.find()
    dgy = Columns(a.dgy, _width(a), part.first)
    kept.find_tangents(dgy, a.dgy is not None and written(f"dgy {part.name}"))
    gy = Columns(a.gy, _width(a), part.first)
    if out is not None:
        kept.by_table(gy, out, written(f"d{part.name}"))
    if a.dweight is not None:
        kept.by_weight(gy, a.dweight, written("dweight"))
