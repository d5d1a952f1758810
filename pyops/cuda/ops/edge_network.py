"""Sum of networks of the incoming entries of each destination, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _neighbours as neighbours
from .._array import DeviceArray, required
from .._edge_network import Gradients, Network, phases
from .._neighbours import Rows

if TYPE_CHECKING:
    from .._declared import EdgeNetwork
    from .._runtime import Runtime

MEAN = 2


class _Summed(Network):
    """Results summed over the entries of each destination, or their means."""

    def __init__(self, rt: Runtime, a: EdgeNetwork, second: bool) -> None:
        super().__init__(rt, a, second)
        self.offsets, self.gy, self.divisors = a.in_offsets, a.gy, None
        if a.reduce == MEAN:
            degrees = rt.xp.maximum(self.offsets[1:] - self.offsets[:-1], 1)
            self.divisors = degrees.astype(self.dtype)[:, None]
            if self.gy is not None:
                self.gy = self.gy / self.divisors

    def run(self, y: DeviceArray | None, out: Gradients | None) -> None:
        if y is not None and not self.accumulate:
            y[...] = 0
        super().run(y, out)

    def _rows(self, batch: slice) -> DeviceArray:
        """Return the destination of each entry of a batch, 0-based."""
        return neighbours.owners(self.graph)[batch] - 1

    def add(self, batch: slice, values: DeviceArray, y: DeviceArray) -> None:
        if self.divisors is not None:
            values = values / self.divisors.take(self._rows(batch), axis=0)
        on_host = self.graph.to_host()._index("in_offsets")
        one, stop = map(int, np.searchsorted(on_host, [batch.start + 1, batch.stop], side="right"))
        first = one - 1
        # Rows of the first and of the last entry may go on in other batches.
        offsets = self.offsets[first : stop + 1] - batch.start
        offsets[:1] = 1
        offsets[-1:] = len(values) + 1
        rows = Rows(stop - first, len(values), offsets, longest=self.graph._longest("in"))
        neighbours.add_table(self.rt, rows, values, y[first:stop], True)

    def cotangents(self, batch: slice) -> DeviceArray:
        return required(self.gy).take(self._rows(batch), axis=0)


forward, backward, double_backward = phases(_Summed)
