"""Network of the features of each entry, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._array import DeviceArray, required
from .._edge_network import Network, phases
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from .._declared import EdgeMlp
    from .._runtime import Runtime


class _OfEntries(Network):
    """Results in the order of the graph's entries."""

    def __init__(self, rt: Runtime, a: EdgeMlp, second: bool) -> None:
        super().__init__(rt, a, second)
        self.order, self.gy = a.in_order, a.gy

    def add(self, batch: slice, values: DeviceArray, y: DeviceArray) -> None:
        rows, width = Rows(0, len(values), None), values.shape[1]
        out = Columns(y, width)
        neighbours.gather(self.rt, rows, self.order[batch], values, out, self.accumulate)

    def cotangents(self, batch: slice) -> DeviceArray:
        return required(self.gy).take(self.order[batch] - 1, axis=0)


forward, backward, double_backward = phases(_OfEntries)
