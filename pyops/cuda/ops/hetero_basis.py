"""Sums of neighbour features, once for each basis of the relations, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._bilinear import phases
from .._heads import Features, Heads

if TYPE_CHECKING:
    from .._array import DeviceArray
    from .._declared import HeteroBasis
    from .._runtime import Runtime


class _Bases(Heads):
    """Bases as heads: they share the source features; each has its own destination features."""

    def __init__(self, rt: Runtime, a: HeteroBasis) -> None:
        super().__init__(rt, a.graph, a.x.dtype, a.num_bases, a.width)
        self.a = a

    def add(
        self, x: DeviceArray, weight: DeviceArray | None, y: DeviceArray, accumulate: bool
    ) -> None:
        terms = [(weight, Features(x, self.width, 0))]
        self.weighted_sums(self.incoming, self.a.in_edges, terms, y, accumulate)

    def by_x(self, weight: DeviceArray | None, gx: DeviceArray, accumulate: bool) -> None:
        a, rows = self.a, neighbours.outgoing(self.graph, nodes=self.a.out_nodes)
        by_basis = self.rt.empty((a.num_src, self.heads, self.width), self.dtype)
        self.weighted_sums(rows, a.out_edges, [(weight, self.by_head(a.gy))], by_basis, False)
        total = by_basis.sum(1)
        gx[...] = gx + total if accumulate else total

    def by_weight(self, x: DeviceArray, gweight: DeviceArray, accumulate: bool) -> None:
        dots, sources = self.by_entry(), Features(x, self.width, 0)
        self.dot(self.a.in_nodes, self.owners(), self.by_head(self.a.gy), sources, dots)
        self.sum(self.edge_rows(), dots, gweight, accumulate)


forward, backward, double_backward = phases(_Bases)
