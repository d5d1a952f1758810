"""Kernel network of the graph neural operator on a device, in batches of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._array import DeviceArray, required, store
from .._convolution import WORKSPACE, Layer, RowSums, blocks

if TYPE_CHECKING:
    from .._declared import GnoKernel
    from .._runtime import Runtime


class Network(Layer):
    """Kernel network, evaluated on batches of edges whose hidden layer fits in `WORKSPACE`."""

    def __init__(self, rt: Runtime, a: GnoKernel) -> None:
        super().__init__(rt, a)
        self.a = a
        self.matrix = self.weight(a.params, a.hidden + 1)
        self.matrix_tangent = None
        if self.dparams is not None:
            self.matrix_tangent = self.weight(self.dparams, a.hidden + 1)
        most = max(1, WORKSPACE // ((a.hidden + 1) * a.params.itemsize))
        starts = range(0, a.num_edges, most)
        self.batches = [slice(start, min(start + most, a.num_edges)) for start in starts]

    def _operands(self, batch: slice) -> list[DeviceArray | None]:
        dcoords = None if self.dcoords is None else self.dcoords[batch]
        return [self.coords[batch], self.params, dcoords, self.dparams]

    def value(self, batch: slice, along: bool) -> DeviceArray:
        """Return the hidden layer and a column of ones, or their derivative."""
        a, count = self.a, batch.stop - batch.start
        y = self.rt.empty((count, a.hidden + 1), self.dtype)
        args = *self._operands(batch), y, count, a.dim, a.hidden, a.activation, along
        self.rt.launch("gno", "layer_value", self.dtype, blocks(y.size), 256, args, WIDTH=16)
        return y

    def vjp(self, batch: slice, second: bool) -> tuple[DeviceArray, DeviceArray]:
        """Return the gradients p by the arguments of the hidden units and, for second order, q."""
        a, count = self.a, batch.stop - batch.start
        p, q = (self.rt.empty((count, a.hidden), self.dtype) for _ in range(2))
        gy, hb = required(a.gy)[batch], None
        ghid = self.multiply(gy, self.matrix.T)
        if second and self.matrix_tangent is not None:
            hb = self.multiply(gy, self.matrix_tangent.T)
        sizes = count, a.dim, a.hidden, a.activation, second
        args = *self._operands(batch), ghid, hb, p, q, *sizes
        self.rt.launch("gno", "layer_back", self.dtype, blocks(p.size), 256, args, WIDTH=16)
        return p, q

    def unpack(self, params: DeviceArray) -> DeviceArray:
        """Return U, [dim, hidden], of a parameter block."""
        return params[: self.a.dim * self.a.hidden].reshape(self.a.dim, self.a.hidden)


def forward(rt: Runtime, a: GnoKernel) -> None:
    """Compute y."""
    net = Network(rt, a)
    for batch in net.batches:
        product = net.multiply(net.value(batch, False), net.matrix)
        store(a.y[batch], [product], a.accumulate)


def backward(rt: Runtime, a: GnoKernel) -> None:
    """Compute gcoords and gparams, as requested."""
    _gradients(Network(rt, a), False, a.gcoords, a.gparams)


def double_backward(rt: Runtime, a: GnoKernel) -> None:
    """Compute dcoords, dparams and dgy, as requested."""
    net = Network(rt, a)
    if a.dgy is not None:
        for batch in net.batches:
            terms = []
            if net.moves:
                terms.append(net.multiply(net.value(batch, True), net.matrix))
            if net.matrix_tangent is not None:
                terms.append(net.multiply(net.value(batch, False), net.matrix_tangent))
            store(a.dgy[batch], terms, a.accumulate)
    _gradients(net, True, a.dcoords, a.dparams)


def _gradients(
    net: Network, second: bool, gcoords: DeviceArray | None, gparams: DeviceArray | None
) -> None:
    a, rt = net.a, net.rt
    if gcoords is None and gparams is None:
        return
    gy, u = required(a.gy), net.unpack(a.params)
    du = None if net.dparams is None or not second else net.unpack(net.dparams)
    weight, slopes = rt.zeros(net.matrix.shape, "d"), rt.zeros(u.shape, "d")
    bias = RowSums(rt, [batch.stop - batch.start for batch in net.batches], a.hidden)
    for batch in net.batches:
        p, q = net.vjp(batch, second)
        if gcoords is not None:
            terms = [net.multiply(p, u.T)]
            if du is not None:
                terms.append(net.multiply(q, du.T))
            store(gcoords[batch], terms, a.accumulate)
        if gparams is not None:
            weight += net.multiply(net.value(batch, second).T, gy[batch])
            slopes += net.multiply(a.coords[batch].T, p)
            if second and net.dcoords is not None:
                slopes += net.multiply(net.dcoords[batch].T, q)
            bias.add(p)
    if gparams is not None:
        net.store(gparams, 0, slopes)
        bias.store(gparams[slopes.size :], a.accumulate)
        net.store(gparams, net.length, weight)
