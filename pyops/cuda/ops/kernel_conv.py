"""Convolution with a kernel given by its last hidden layer, on a device.

With L_e = w_e (z_e | 1) the result is the sum of L_e (x) h_j times W = [V; b], linear in each of
the three. W of a diagonal kernel multiplies elementwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._array import DeviceArray, plus, store
from .._convolution import Convolution

if TYPE_CHECKING:
    from .._declared import KernelConv
    from .._runtime import Runtime

DIAGONAL = MEAN = 2


class _GivenLayer(Convolution):
    """Convolution with a given layer, weighted and with a column of ones for the bias."""

    def __init__(self, rt: Runtime, a: KernelConv) -> None:
        self._set(rt, a.features.dtype, a.precision, a.accumulate)
        self.graph, self.features, self.tangent, self.gy = a.graph, a.features, a.hfeatures, a.gy
        self.in_features, self.out_features = a.in_features, a.out_features
        self.operands = None, None, None, None
        self.has_bias, self.diagonal = a.bias is not None, a.kernel == DIAGONAL
        self.hidden, self.units = a.hidden, a.hidden + self.has_bias
        self.sizes = 0, self.units, 0
        self.factors, self.tfactors = a.edge_weight, a.hedge_weight
        self.layer = self._extended(a.hidden_layer, 1)
        self.tlayer = None if a.hhidden_layer is None else self._extended(a.hhidden_layer, 0)
        self.given = self._weighted(self.layer), self._weighted_tangent()
        self.moves = self.given[1] is not None
        self.matrix = self._matrix(a.weight, a.bias)
        if a.hweight is not None or a.hbias is not None:
            self.matrix_tangent = self._matrix(a.hweight, a.hbias)
        if a.reduce == MEAN:
            offsets = a.graph._index("in_offsets")
            degrees = offsets[1 : a.num_dst + 1] - offsets[: a.num_dst]
            self.divisors = rt.xp.maximum(degrees, 1).astype(self.dtype)
            if self.gy is not None:
                self.gy = self.gy / self.divisors[:, None]

    def _extended(self, layer: DeviceArray, last: int) -> DeviceArray:
        full = self.rt.empty((self.graph.num_edges, self.units), self.dtype)
        full[:, : self.hidden] = layer
        full[:, self.hidden :] = last
        return full

    def _weighted(self, layer: DeviceArray) -> DeviceArray:
        return layer if self.factors is None else layer * self.factors[:, None]

    def _weighted_tangent(self) -> DeviceArray | None:
        """Return the tangent of the weighted layer."""
        by_layer = None if self.tlayer is None else self._weighted(self.tlayer)
        by_factors = None if self.tfactors is None else self.layer * self.tfactors[:, None]
        return plus(by_layer, by_factors)

    def _matrix(self, weight: DeviceArray | None, bias: DeviceArray | None) -> DeviceArray:
        """Return W with rows for units and features of sources, or for units if it is diagonal."""
        columns = 1 if self.diagonal else self.out_features
        full = self.rt.zeros((self.units, self.in_features * columns), self.dtype)
        if weight is not None:
            full[: self.hidden] = weight.T
        if bias is not None:
            full[self.hidden] = bias
        return full if self.diagonal else full.reshape(-1, columns)

    def transpose(self, matrix: DeviceArray) -> DeviceArray:
        return matrix if self.diagonal else super().transpose(matrix)

    def apply(
        self, sums: DeviceArray, matrix: DeviceArray, out: DeviceArray | None = None
    ) -> DeviceArray:
        if not self.diagonal:
            return super().apply(sums, matrix, out)
        return (sums.reshape(len(sums), *matrix.shape) * matrix).sum(1, out=out)

    def unfold(self, gm: DeviceArray, matrix: DeviceArray) -> DeviceArray:
        if not self.diagonal:
            return super().unfold(gm, matrix)
        return (gm[:, None] * matrix).reshape(len(gm), -1)

    def pair(self, sums: DeviceArray, gm: DeviceArray) -> DeviceArray:
        if not self.diagonal:
            return super().pair(sums, gm)
        return (sums.reshape(len(sums), -1, gm.shape[1]) * gm[:, None]).sum(0)

    def by_matrix(self, along: bool, weight: DeviceArray | None, bias: DeviceArray | None) -> None:
        """Compute the requested gradients by the last layer."""
        if weight is None and bias is None:
            return
        by_units = self.weight_sum(along).reshape(self.units, -1)
        if weight is not None:
            store(weight, [by_units[: self.hidden].T], self.accumulate)
        if bias is not None:
            store(bias, [by_units[self.hidden]], self.accumulate)

    def _by_weighted_layer(self, second: bool) -> DeviceArray:
        """Return the gradient by the weighted layer of each edge, or its tangent."""
        by_entry = self.rt.empty((1, self.graph.num_entries, self.units), self.dtype)
        self.vjp(second, by_entry, None, None)
        found = self.rt.empty((self.graph.num_edges, self.units), self.dtype)
        self.sum_entries(by_entry, found, False)
        return found

    def by_layer(
        self, second: bool, hidden_layer: DeviceArray | None, edge_weight: DeviceArray | None
    ) -> None:
        """Compute the requested gradients by the factors of the weighted layer."""
        if hidden_layer is None and edge_weight is None:
            return
        gradient = self._by_weighted_layer(second)
        tlayer, tfactors = (self.tlayer, self.tfactors) if second else (None, None)
        first = gradient
        if tlayer is not None or tfactors is not None:
            first = self._by_weighted_layer(False)
        if hidden_layer is not None:
            values = self._weighted(gradient)
            if tfactors is not None:
                values = values + first * tfactors[:, None]
            store(hidden_layer, [values[:, : self.hidden]], self.accumulate)
        if edge_weight is not None:
            terms = gradient * self.layer
            if tlayer is not None:
                terms = terms + first * tlayer
            store(edge_weight, [terms.sum(1)], self.accumulate)


def forward(rt: Runtime, a: KernelConv) -> None:
    """Compute y."""
    _GivenLayer(rt, a).forward(a.y)


def backward(rt: Runtime, a: KernelConv) -> None:
    """Compute the gradients by features, layer, factors, weight and bias, as requested."""
    conv = _GivenLayer(rt, a)
    if a.gfeatures is not None:
        conv.by_features(False, a.gfeatures)
    conv.by_matrix(False, a.gweight, a.gbias)
    conv.by_layer(False, a.ghidden_layer, a.gedge_weight)


def double_backward(rt: Runtime, a: KernelConv) -> None:
    """Compute dgy and the second-order gradients by all inputs, as requested."""
    conv = _GivenLayer(rt, a)
    if a.dgy is not None:
        conv.derivative(a.dgy)
    if a.dfeatures is not None:
        conv.by_features(True, a.dfeatures)
    conv.by_matrix(True, a.dweight, a.dbias)
    conv.by_layer(True, a.dhidden_layer, a.dedge_weight)
