"""Degree-normalised sums of neighbour features on a device."""

from __future__ import annotations

from typing import Any

from .. import _neighbours as neighbours
from .._neighbours import Columns
from .._runtime import Runtime
from .._written import Written


class _Sums:
    """Sums over the rows of either side, scaled by the degrees of both sides."""

    def __init__(self, rt: Runtime, a: Any) -> None:
        self.rt, self.a = rt, a
        self.src, self.dst = self._shares(a.out_offsets), self._shares(a.in_offsets)

    def _shares(self, offsets: Any) -> Any:
        """Return degree**(-1/2) of each node as a column; 0 for nodes without entries."""
        degrees = offsets[1:] - offsets[:-1]
        shares = self.rt.xp.maximum(degrees, 1) ** -0.5 * (degrees > 0)
        return shares.astype(self.a.x.dtype)[:, None]

    def weight(self) -> Any:
        return self.a.weight if self.a.present >> 1 & 1 else None

    def _add(self, rows: Any, table: Any, shares: Any, out: Any, accumulate: bool) -> None:
        width = self.a.width
        sums = self.rt.empty((rows.count, width), table.dtype)
        place = Columns(sums, width, 0)
        neighbours.add(self.rt, rows, Columns(table, width, 0), width, place, False)
        out[...] = out + sums * shares if accumulate else sums * shares

    def into(self, x: Any, weight: Any, y: Any, accumulate: bool) -> None:
        a = self.a
        rows = neighbours.into(a, nodes=a.in_nodes, weighted=a.in_edges, weight=weight)
        self._add(rows, x * self.src, self.dst, y, accumulate)

    def back(self, weight: Any, gx: Any, accumulate: bool) -> None:
        a = self.a
        rows = neighbours.out_of(a, nodes=a.out_nodes, weighted=a.out_edges, weight=weight)
        self._add(rows, a.gy * self.dst, self.src, gx, accumulate)

    def weights(self, x: Any, out: Any, accumulate: bool) -> None:
        a = self.a
        neighbours.dot(
            self.rt, neighbours.of_edges(a, nodes=a.in_nodes), a.id_entries, neighbours.owners(a),
            a.in_offsets, False, None, Columns(a.gy * self.dst, a.width, 0), x * self.src, a.width,
            out, accumulate,
        )  # fmt: skip


def forward(rt: Runtime, a: Any) -> None:
    sums = _Sums(rt, a)
    sums.into(a.x, sums.weight(), a.y, a.accumulate)


def backward(rt: Runtime, a: Any) -> None:
    sums = _Sums(rt, a)
    if a.wanted & 1:
        sums.back(sums.weight(), a.gx, a.accumulate)
    if a.wanted & 2:
        sums.weights(a.x, a.gweight, a.accumulate)


def double_backward(rt: Runtime, a: Any) -> None:
    sums, written = _Sums(rt, a), Written(a)
    if a.given & 2 and a.wanted & 1:
        sums.back(a.hweight, a.dx, written("dx"))
    if a.given & 1 and a.wanted & 2:
        sums.weights(a.hx, a.dweight, written("dweight"))
    if a.given & 1 and a.wanted & 4:
        sums.into(a.hx, sums.weight(), a.dgy, written("dgy"))
    if a.given & 2 and a.wanted & 4:
        sums.into(a.x, a.hweight, a.dgy, written("dgy"))
    written.finish("dx", "dweight", "dgy")
