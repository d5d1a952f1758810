"""Sums of neighbour features, once for each basis of the relations, on a device."""

from __future__ import annotations

from typing import Any

from .. import _neighbours as neighbours
from .._heads import Gathered, Heads
from .._runtime import Runtime
from .._written import Written


class _Bases(Heads):
    """Bases as heads: they share the source features; each has its own destination features."""

    def __init__(self, rt: Runtime, a: Any) -> None:
        super().__init__(rt, a, a.x.dtype, a.num_bases, a.width)

    def sum_bases(self, x: Any, weight: Any, y: Any, accumulate: bool) -> None:
        self.weigh(
            self.into, self.a.in_edges, [(weight, Gathered(x, self.width, 0))], y, accumulate
        )

    def back(self, weight: Any, gx: Any, accumulate: bool) -> None:
        a, rows = self.a, neighbours.out_of(self.a, nodes=self.a.out_nodes)
        by_basis = self.rt.empty((a.num_src, self.heads, self.width), self.dtype)
        self.weigh(rows, a.out_edges, [(weight, self.own(a.gy))], by_basis, False)
        total = by_basis.sum(1)
        gx[...] = gx + total if accumulate else total

    def weights(self, x: Any, gweight: Any, accumulate: bool) -> None:
        dots = self.numbers_of(self.a.num_entries)
        of_sources = Gathered(x, self.width, 0)
        self.multiply(self.a.in_nodes, self.owners(), self.own(self.a.gy), of_sources, dots)
        self.sum(self.by_edges(), dots, gweight, accumulate)


def forward(rt: Runtime, a: Any) -> None:
    _Bases(rt, a).sum_bases(a.x, a.weight, a.y, a.accumulate)


def backward(rt: Runtime, a: Any) -> None:
    bases = _Bases(rt, a)
    if a.wanted & 1:
        bases.back(a.weight, a.gx, a.accumulate)
    if a.wanted & 2:
        bases.weights(a.x, a.gweight, a.accumulate)


def double_backward(rt: Runtime, a: Any) -> None:
    bases, written = _Bases(rt, a), Written(a)
    if a.given & 2 and a.wanted & 1:
        bases.back(a.hweight, a.dx, written("dx"))
    if a.given & 1 and a.wanted & 2:
        bases.weights(a.hx, a.dweight, written("dweight"))
    if a.given & 1 and a.wanted & 4:
        bases.sum_bases(a.hx, a.weight, a.dgy, written("dgy"))
    if a.given & 2 and a.wanted & 4:
        bases.sum_bases(a.x, a.hweight, a.dgy, written("dgy"))
    written.finish("dx", "dweight", "dgy")
