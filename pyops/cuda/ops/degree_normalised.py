"""Degree-normalised sums of neighbour features on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._array import DeviceArray, real_type, required
from .._bilinear import phases
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from .._declared import DegreeNormalised
    from .._runtime import Runtime


class _Sums:
    """Sums over the rows of either side, scaled by the degrees of both sides."""

    def __init__(self, rt: Runtime, a: DegreeNormalised) -> None:
        self.rt, self.a = rt, a
        self.src, self.dst = self._scales("out_offsets"), self._scales("in_offsets")

    def _scales(self, name: str) -> DeviceArray:
        """Return degree**(-1/2) of each node; 0 for nodes without entries."""
        offsets = self.a.graph._index(name)
        degrees = offsets[1:] - offsets[:-1]
        scales = self.rt.xp.maximum(degrees, 1) ** -0.5 * (degrees > 0)
        return scales.astype(real_type(self.a.x.dtype))

    def _add(
        self, rows: Rows, table: DeviceArray, scales: tuple[DeviceArray, DeviceArray],
        out: DeviceArray, accumulate: bool,
    ) -> None:  # fmt: skip
        """`out` (+)= the sums of table rows; `scales` are those of the table and of the sums."""
        width, (of_table, of_sums) = self.a.width, scales
        sums = self.rt.empty((rows.count, width), real_type(table.dtype))
        neighbours.add(
            self.rt, rows, Columns(table, width), width, Columns(sums, width), False,
            scales=of_table,
        )  # fmt: skip
        sums = sums * of_sums[:, None]
        out[...] = out + sums if accumulate else sums

    def add(
        self, x: DeviceArray, weight: DeviceArray | None, y: DeviceArray, accumulate: bool
    ) -> None:
        a = self.a
        rows = neighbours.incoming(a.graph, nodes=a.in_nodes, weighted=a.in_edges, weight=weight)
        self._add(rows, x, (self.src, self.dst), y, accumulate)

    def by_x(self, weight: DeviceArray | None, gx: DeviceArray, accumulate: bool) -> None:
        a = self.a
        rows = neighbours.outgoing(a.graph, nodes=a.out_nodes, weighted=a.out_edges, weight=weight)
        self._add(rows, required(a.gy), (self.dst, self.src), gx, accumulate)

    def by_weight(self, x: DeviceArray, out: DeviceArray, accumulate: bool) -> None:
        a, gradient = self.a, Columns(required(self.a.gy), self.a.width)
        neighbours.dot(
            self.rt, a.graph, False, gradient, x, a.width, out, accumulate,
            scales=(self.src, self.dst),
        )  # fmt: skip


forward, backward, double_backward = phases(_Sums)
