"""Network of the features of each entry, on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._array import DeviceArray, plus, required
from .._edge_network import Gradients, Layers, Network, phases
from .._neighbours import Columns, Rows

if TYPE_CHECKING:
    from .._declared import EdgeMlp
    from .._runtime import Runtime


class _OfEntries(Network):
    """Results in the order of the graph's entries."""

    def __init__(self, rt: Runtime, a: EdgeMlp, second: bool) -> None:
        super().__init__(rt, a, second)
        self.order, self.gy, self.residual = a.in_order, a.gy, a.residual

    def layers(self, batch: slice, with_y: bool) -> Layers:
        found = super().layers(batch, with_y)
        if not (self.residual and with_y):
            return found
        assert found.features is not None
        more = found.features.tangent if self.second else found.features.value
        return replace(found, y=plus(found.y, more))

    def vjp(self, batch: slice, layers: Layers, out: Gradients) -> None:
        super().vjp(batch, layers, out)
        if self.residual and not self.second and out.by_entry is not None:
            out.by_entry[batch] += self.cotangents(batch)

    def add(self, batch: slice, values: DeviceArray, y: DeviceArray) -> None:
        rows, width = Rows(0, len(values), None), values.shape[1]
        out = Columns(y, width)
        neighbours.gather(self.rt, rows, self.order[batch], values, out, self.accumulate)

    def cotangents(self, batch: slice) -> DeviceArray:
        return required(self.gy).take(self.order[batch] - 1, axis=0)


forward, backward, double_backward = phases(_OfEntries)
