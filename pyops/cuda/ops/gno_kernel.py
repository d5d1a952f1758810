from types import SimpleNamespace
from typing import Any

from .._convolution import WORKSPACE, Layer, RowSums, blocks
from .._runtime import Runtime


class Network(Layer):
    """Kernel network, evaluated on batches of edges whose hidden layer fits in `WORKSPACE`."""

    def __init__(self, rt: Runtime, a: SimpleNamespace) -> None:
        super().__init__(rt, a)
        self.matrix = self.weight(a.params, a.hidden + 1)
        self.matrix_tangent = None
        if self.dparams is not None:
            self.matrix_tangent = self.weight(self.dparams, a.hidden + 1)
        most = max(1, WORKSPACE // ((a.hidden + 1) * self.dtype.itemsize))
        starts = range(0, a.num_edges, most)
        self.parts = [slice(start, min(start + most, a.num_edges)) for start in starts]

    def _operands(self, part: slice) -> list[Any]:
        dcoords = None if self.dcoords is None else self.dcoords[part]
        return [self.coords[part], self.params, dcoords, self.dparams]

    def value(self, part: slice, along: bool) -> Any:
        """Return the hidden layer and a column of ones, or their derivative."""
        a, count = self.a, part.stop - part.start
        y = self.rt.empty((count, a.hidden + 1), self.dtype)
        held = [*self._operands(part), y, count, a.dim, a.hidden, a.activation, along]
        self.rt.launch("gno", "layer_value", self.dtype, blocks(y.size), 256, held, WIDTH=16)
        return y

    def back(self, part: slice, second: bool) -> tuple[Any, Any]:
        """Return the gradients p by the arguments of the hidden units and, for second order, q."""
        a, count = self.a, part.stop - part.start
        p, q = (self.rt.empty((count, a.hidden), self.dtype) for _ in range(2))
        ghid, hb = self.multiply(a.gy[part], self.matrix.T), None
        if second and self.matrix_tangent is not None:
            hb = self.multiply(a.gy[part], self.matrix_tangent.T)
        sizes = count, a.dim, a.hidden, a.activation, second
        held = [*self._operands(part), ghid, hb, p, q, *sizes]
        self.rt.launch("gno", "layer_back", self.dtype, blocks(p.size), 256, held, WIDTH=16)
        return p, q

    def put(self, out: Any, part: slice, terms: list[Any]) -> None:
        """Store the sum of the terms in rows of an array."""
        rows = out[part]
        if not self.a.accumulate:
            rows[...] = terms.pop(0) if terms else 0
        for term in terms:
            rows += term

    def unpack(self, params: Any) -> Any:
        """Return U, [dim, hidden], of a parameter block."""
        return params[: self.a.dim * self.a.hidden].reshape(self.a.dim, self.a.hidden)


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    net = Network(rt, a)
    for part in net.parts:
        net.put(a.y, part, [net.multiply(net.value(part, False), net.matrix)])


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    _gradients(Network(rt, a), False, a.gcoords, a.gparams)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    net = Network(rt, a)
    if a.dgy is not None:
        for part in net.parts:
            terms = []
            if net.moves:
                terms.append(net.multiply(net.value(part, True), net.matrix))
            if net.matrix_tangent is not None:
                terms.append(net.multiply(net.value(part, False), net.matrix_tangent))
            net.put(a.dgy, part, terms)
    _gradients(net, True, a.dcoords, a.dparams)


def _gradients(net: Network, second: bool, gcoords: Any, gparams: Any) -> None:
    a, rt = net.a, net.rt
    if gcoords is None and gparams is None:
        return
    u = net.unpack(a.params)
    du = None if net.dparams is None else net.unpack(net.dparams)
    weight = rt.zeros(net.matrix.shape, "d")
    slopes = rt.zeros(u.shape, "d")
    bias = RowSums(rt, [part.stop - part.start for part in net.parts], a.hidden)
    for part in net.parts:
        p, q = net.back(part, second)
        if gcoords is not None:
            terms = [net.multiply(p, u.T)]
            if second and du is not None:
                terms.append(net.multiply(q, du.T))
            net.put(gcoords, part, terms)
        if gparams is not None:
            weight += net.multiply(net.value(part, second).T, a.gy[part])
            slopes += net.multiply(a.coords[part].T, p)
            if second and net.dcoords is not None:
                slopes += net.multiply(net.dcoords[part].T, q)
            bias.add(p)
    if gparams is not None:
        net.store(gparams, 0, slopes)
        bias.store(gparams[slopes.size :], a.accumulate)
        net.store(gparams, net.length, weight)
