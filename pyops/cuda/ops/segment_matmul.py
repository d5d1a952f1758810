"""Products of rows with the matrices of their types, on a device.

Rows are gathered in the order of their types, then each type is one matrix product.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._arguments import Written
from .._array import DeviceArray, required
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._declared import SegmentMatmul
    from .._runtime import Runtime


class _Products:
    """The products of a call; outputs (+)= products."""

    def __init__(self, rt: Runtime, a: SegmentMatmul) -> None:
        self.rt, self.a = rt, a

    def types(self) -> Iterator[tuple[int, slice]]:
        """Yield each type with its entries, in CSC order."""
        offsets = self.a.graph._on_host("in_offsets") - 1
        for number, ends in enumerate(itertools.pairwise(offsets.tolist())):
            yield number, slice(*ends)

    def matrices(self, weight: DeviceArray) -> DeviceArray:
        return weight.reshape(self.a.num_dst, self.a.in_features, self.a.out_features)

    def rows(self, x: DeviceArray) -> DeviceArray:
        return x.take(self.a.in_nodes - 1, axis=0)

    def cotangents(self) -> DeviceArray:
        return required(self.a.gy).take(self.a.in_order - 1, axis=0)

    def multiply(self, rows: DeviceArray, matrices: DeviceArray) -> DeviceArray:
        """Return each row times the matrix of its type."""
        found = self.rt.empty((len(rows), matrices.shape[2]), rows.dtype)
        for number, some in self.types():
            if some.start < some.stop:
                self.rt.matmul(rows[some], matrices[number], found[some], self.a.precision)
        return found

    def add(self, x: DeviceArray, weight: DeviceArray, y: DeviceArray, accumulate: bool) -> None:
        found = self.multiply(self.rows(x), self.matrices(weight))
        self.scatter(found, None, y, accumulate)

    def add_bias(self, bias: DeviceArray, y: DeviceArray, accumulate: bool) -> None:
        self.scatter(bias, neighbours.owners(self.a.graph), y, accumulate)

    def scatter(
        self, table: DeviceArray, nodes: DeviceArray | None, y: DeviceArray, accumulate: bool
    ) -> None:
        """`y` (+)= the table row of each entry."""
        entries = Rows(0, self.a.num_entries, None, nodes)
        out = Columns(y, self.a.out_features)
        neighbours.gather(self.rt, entries, self.a.in_order, table, out, accumulate)

    def by_x(self, weight: DeviceArray, gx: DeviceArray, accumulate: bool) -> None:
        products = self.multiply(self.cotangents(), self.matrices(weight).swapaxes(1, 2))
        rows = neighbours.outgoing(self.a.graph, edges=self.a.out_entries)
        neighbours.add_table(self.rt, rows, products, gx, accumulate)

    def by_weight(self, x: DeviceArray, gweight: DeviceArray, accumulate: bool) -> None:
        rows, gy, into = self.rows(x), self.cotangents(), self.matrices(gweight)
        for number, some in self.types():
            if some.start < some.stop:
                product = self.rt.matmul(rows[some].T, gy[some], precision=self.a.precision)
                into[number] = into[number] + product if accumulate else product
            elif not accumulate:
                into[number] = 0

    def by_bias(self, gbias: DeviceArray, accumulate: bool) -> None:
        rows = neighbours.incoming(self.a.graph, edges=self.a.in_order)
        neighbours.add_table(self.rt, rows, required(self.a.gy), gbias, accumulate)


def forward(rt: Runtime, a: SegmentMatmul) -> None:
    """Compute y."""
    of = _Products(rt, a)
    of.add(a.x, a.weight, a.y, a.accumulate)
    if a.bias is not None:
        of.add_bias(a.bias, a.y, True)


def backward(rt: Runtime, a: SegmentMatmul) -> None:
    """Compute gx, gweight and gbias, as requested."""
    of = _Products(rt, a)
    if a.gx is not None:
        of.by_x(a.weight, a.gx, a.accumulate)
    if a.gweight is not None:
        of.by_weight(a.x, a.gweight, a.accumulate)
    if a.gbias is not None:
        of.by_bias(a.gbias, a.accumulate)


def double_backward(rt: Runtime, a: SegmentMatmul) -> None:
    """Compute dx, dweight and dgy, as requested; dbias is 0."""
    of, written = _Products(rt, a), Written(a)
    if a.hweight is not None and a.dx is not None:
        of.by_x(a.hweight, a.dx, written("dx"))
    if a.hx is not None and a.dweight is not None:
        of.by_weight(a.hx, a.dweight, written("dweight"))
    if a.dgy is not None:
        if a.hx is not None:
            of.add(a.hx, a.weight, a.dgy, written("dgy"))
        if a.hweight is not None:
            of.add(a.x, a.hweight, a.dgy, written("dgy"))
        if a.hbias is not None:
            of.add_bias(a.hbias, a.dgy, written("dgy"))
    written.finish("dx", "dweight", "dbias", "dgy")
