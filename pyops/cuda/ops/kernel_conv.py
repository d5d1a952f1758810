"""Convolution with a kernel given by its last hidden layer, on a device.

With L_e = w_e (z_e | 1) the result is the sum of L_e (x) h_j times W = [V; b], linear in each of
the three. W of a diagonal kernel multiplies elementwise.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .._convolution import Convolution
from .._runtime import Runtime

DIAGONAL = MEAN = 2


class _Given(Convolution):
    """Convolution with a given layer, weighted and with a column of ones for the bias."""

    def __init__(self, rt: Runtime, a: SimpleNamespace, given: int = 0) -> None:
        self.rt, self.a, self.dtype = rt, a, a.features.dtype
        self.operands = None, None, None, None
        self.has_bias = int(bool(a.present >> 3 & 1))
        self.units = a.hidden + self.has_bias
        self.sizes = 0, self.units, 0
        self.diagonal = a.kernel == DIAGONAL
        self.factors = a.edge_weight if a.present >> 4 & 1 else None
        self.moved_factors = a.hedge_weight if given & 16 else None
        self.layer = self._extended(a.hidden_layer, 1)
        self.tangent = a.hfeatures if given & 1 else None
        self.layer_tangent = self._extended(a.hhidden_layer, 0) if given & 2 else None
        self.given = self._weighted(self.layer), self._moved()
        self.moves = self.given[1] is not None
        self.matrix, self.matrix_tangent = self._matrix(a.weight, a.bias), None
        if given & 12:
            weight, bias = (
                some if given & bit else None for some, bit in ((a.hweight, 4), (a.hbias, 8))
            )
            self.matrix_tangent = self._matrix(weight, bias)
        self.gy, self.divisors = getattr(a, "gy", None), None
        if a.reduce == MEAN:
            degrees = a.in_offsets[1 : a.num_dst + 1] - a.in_offsets[: a.num_dst]
            self.divisors = rt.xp.maximum(degrees, 1).astype(self.dtype)
            if self.gy is not None:
                self.gy = self.gy / self.divisors[:, None]

    def _extended(self, layer: Any, last: int) -> Any:
        full = self.rt.empty((self.a.num_edges, self.units), self.dtype)
        full[:, : self.a.hidden] = layer
        full[:, self.a.hidden :] = last
        return full

    def _weighted(self, layer: Any) -> Any:
        return layer if self.factors is None else layer * self.factors[:, None]

    def _moved(self) -> Any:
        """Return the tangent of the weighted layer."""
        moved = None if self.layer_tangent is None else self._weighted(self.layer_tangent)
        if self.moved_factors is None:
            return moved
        by_factors = self.layer * self.moved_factors[:, None]
        return by_factors if moved is None else moved + by_factors

    def _matrix(self, weight: Any, bias: Any) -> Any:
        """Return W with rows for units and features of sources, or for units if it is diagonal."""
        a, width = self.a, self.a.in_features
        columns = 1 if self.diagonal else a.out_features
        full = self.rt.zeros((self.units, width * columns), self.dtype)
        if weight is not None:
            full[: a.hidden] = weight.T
        if self.has_bias and bias is not None:
            full[a.hidden] = bias
        return full if self.diagonal else full.reshape(-1, columns)

    def turn(self, matrix: Any) -> Any:
        return matrix if self.diagonal else super().turn(matrix)

    def apply(self, sums: Any, matrix: Any, out: Any = None) -> Any:
        if not self.diagonal:
            return super().apply(sums, matrix, out)
        return (sums.reshape(len(sums), *matrix.shape) * matrix).sum(1, out=out)

    def unfold(self, gm: Any, matrix: Any) -> Any:
        if not self.diagonal:
            return super().unfold(gm, matrix)
        return (gm[:, None] * matrix).reshape(len(gm), -1)

    def pair(self, sums: Any, gm: Any) -> Any:
        if not self.diagonal:
            return super().pair(sums, gm)
        return (sums.reshape(len(sums), -1, gm.shape[1]) * gm[:, None]).sum(0)

    def weights(self, along: bool, weight: Any, bias: Any) -> None:
        """Compute the requested gradients by the last layer."""
        hidden = self.a.hidden
        by_units = self.weight_sum(along).reshape(self.units, -1)
        if weight is not None:
            self.put(weight, by_units[:hidden].T)
        if bias is not None:
            self.put(bias, by_units[hidden])

    def by_layer(self, second: bool) -> Any:
        """Return the gradient by the weighted layer of each edge, or its tangent."""
        by_entry = self.rt.empty((1, self.a.num_entries, self.units), self.dtype)
        self.pull(second, by_entry, None, None)
        found = self.rt.empty((self.a.num_edges, self.units), self.dtype)
        self.sum_entries(by_entry, found, False)
        return found

    def put(self, out: Any, values: Any) -> None:
        out[...] = out + values if self.a.accumulate else values

    def layers(self, second: bool, hidden_layer: Any, edge_weight: Any) -> None:
        """Compute the requested gradients by the factors of the weighted layer."""
        found = self.by_layer(second)
        moved_layer = moved_factors = None
        if second:
            moved_layer, moved_factors = self.layer_tangent, self.moved_factors
        first = None
        if moved_layer is not None or moved_factors is not None:
            first = self.by_layer(False)
        if hidden_layer is not None:
            values = self._weighted(found)
            if moved_factors is not None:
                values = values + first * moved_factors[:, None]
            self.put(hidden_layer, values[:, : self.a.hidden])
        if edge_weight is not None:
            terms = found * self.layer
            if moved_layer is not None:
                terms = terms + first * moved_layer
            self.put(edge_weight, terms.sum(1))


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    conv = _Given(rt, a)
    conv.gather("in", a.features, None, [(False, conv.matrix)], a.y)


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    conv = _Given(rt, a)
    if a.wanted & 1:
        conv.gather("out", conv.gy, None, [(False, conv.turn(conv.matrix))], a.gfeatures)
    if a.wanted & 12:
        conv.weights(False, a.gweight, a.gbias)
    if a.wanted & 18:
        conv.layers(False, a.ghidden_layer, a.gedge_weight)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    conv = _Given(rt, a, a.given)
    by_weight = conv.matrix_tangent is not None
    if a.wanted & 32:
        along = conv.moves or conv.tangent is not None
        products = [(True, conv.matrix)] if along else []
        products += [(False, conv.matrix_tangent)] if by_weight else []
        conv.gather("in", a.features, conv.tangent, products, a.dgy)
    if a.wanted & 1:
        products = [(True, conv.turn(conv.matrix))] if conv.moves else []
        products += [(False, conv.turn(conv.matrix_tangent))] if by_weight else []
        conv.gather("out", conv.gy, None, products, a.dfeatures)
    if a.wanted & 12:
        conv.weights(True, a.dweight, a.dbias)
    if a.wanted & 18:
        conv.layers(True, a.dhidden_layer, a.dedge_weight)
