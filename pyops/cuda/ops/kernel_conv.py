"""Convolution with a kernel given by its last hidden layer, on a device.

With L_e = w_e (z_e | 1) and W = [V; b], kappa_e = L_e W. The sum of h_j kappa_e is linear in each
of L, W and h. For matrices kappa it is the sum of L_e (x) h_j, times W.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from .._array import DeviceArray, plus, required, store
from .._convolution import Convolution, Layer, blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._declared import KernelConv
    from .._runtime import Runtime

DIAGONAL = MEAN = 2
EDGES = 2**16
"""Edges whose products are summed in the precision of the arrays."""


class _Given(Layer, ABC):
    """A given layer, weighted and with a column of ones for the bias, and W, with tangents."""

    def __init__(self, rt: Runtime, a: KernelConv) -> None:
        self._set(rt, a.features.dtype, a.precision, a.accumulate)
        self.graph, self.features, self.tangent, self.gy = a.graph, a.features, a.hfeatures, a.gy
        self.in_features, self.out_features = a.in_features, a.out_features
        self.hidden, self.units = a.hidden, a.hidden + (a.bias is not None)
        self.factors, self.tfactors = a.edge_weight, a.hedge_weight
        self.layer = self._extended(a.hidden_layer, 1)
        self.tlayer = None if a.hhidden_layer is None else self._extended(a.hhidden_layer, 0)
        self.weighted, self.tweighted = self._weighted(self.layer), self._weighted_tangent()
        self.matrix, self.matrix_tangent = self._matrix(a.weight, a.bias), None
        if a.hweight is not None or a.hbias is not None:
            self.matrix_tangent = self._matrix(a.hweight, a.hbias)
        self.divisors = None
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
        """Return W [units, elements of kappa]."""
        given = required(bias if weight is None else weight)
        full = self.rt.zeros((self.units, len(given)), self.dtype)
        if weight is not None:
            full[: self.hidden] = weight.T
        if bias is not None:
            full[self.hidden] = bias
        return full

    @abstractmethod
    def weight_sum(self, along: bool) -> DeviceArray:
        """Return the gradient by W, of first order or along the tangents of layer and features."""

    @abstractmethod
    def by_weighted_layer(self, second: bool) -> DeviceArray:
        """Return the gradient by the weighted layer of each edge, or its tangent."""

    def by_matrix(self, along: bool, weight: DeviceArray | None, bias: DeviceArray | None) -> None:
        """Compute the requested gradients by the last layer."""
        if weight is None and bias is None:
            return
        by_units = self.weight_sum(along).reshape(self.units, -1)
        if weight is not None:
            store(weight, [by_units[: self.hidden].T], self.accumulate)
        if bias is not None:
            store(bias, [by_units[self.hidden]], self.accumulate)

    def by_layer(
        self, second: bool, hidden_layer: DeviceArray | None, edge_weight: DeviceArray | None
    ) -> None:
        """Compute the requested gradients by the factors of the weighted layer."""
        if hidden_layer is None and edge_weight is None:
            return
        gradient = self.by_weighted_layer(second)
        tlayer, tfactors = (self.tlayer, self.tfactors) if second else (None, None)
        first = gradient
        if tlayer is not None or tfactors is not None:
            first = self.by_weighted_layer(False)
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


class _Matrix(Convolution, _Given):
    """Kernels that are matrices."""

    def __init__(self, rt: Runtime, a: KernelConv) -> None:
        _Given.__init__(self, rt, a)
        self.given = self.weighted, self.tweighted
        self.operands, self.sizes = (None, None, None, None), (0, self.units, 0)
        self.moves = self.tweighted is not None

    def _matrix(self, weight: DeviceArray | None, bias: DeviceArray | None) -> DeviceArray:
        """Return W with rows for units and features of sources."""
        return super()._matrix(weight, bias).reshape(-1, self.out_features)

    def by_weighted_layer(self, second: bool) -> DeviceArray:
        by_entry = self.rt.empty((1, self.graph.num_entries, self.units), self.dtype)
        self.vjp(second, by_entry, None, None)
        found = self.rt.empty((self.graph.num_edges, self.units), self.dtype)
        self.sum_entries(by_entry, found, False)
        return found


class _Diagonal(_Given):
    """Kernels that act elementwise: kappa_e = L_e W for all edges, then sums over entries."""

    def _kappa(self, along: bool) -> DeviceArray | None:
        """Return kappa of each edge, or its tangent, None if that is 0."""
        if not along:
            return self.multiply(self.weighted, self.matrix)
        layer, matrix = self.tweighted, self.matrix_tangent
        return plus(
            None if layer is None else self.multiply(layer, self.matrix),
            None if matrix is None else self.multiply(self.weighted, matrix),
        )

    def _sum(
        self,
        side: str,
        terms: Sequence[tuple[DeviceArray | None, DeviceArray | None]],
        out: DeviceArray,
    ) -> None:
        """`out` (+)= the sums over the rows of a side of kappa times features.

        Terms of which one is None are skipped.
        """
        names = "segments", "joins", "nodes", "edges"
        segments, joins, nodes, edges = (self.graph._index(f"{side}_{name}") for name in names)
        width = self.in_features
        lanes = 8 if width <= 8 else 32
        sums = None
        for kappa, features in terms:
            if kappa is None or features is None:
                continue
            found = self.rt.empty((len(segments), width), self.dtype)
            args = segments, nodes, edges, kappa, features, found, width
            grid = len(segments), blocks(width, lanes)
            self.rt.launch(
                "matrices", "diagonal_rows", self.dtype, grid, (lanes, 256 // lanes), args,
                LANES=lanes,
            )  # fmt: skip
            sums = plus(sums, found)
        if sums is None:
            sums = self.rt.zeros((len(segments), width), self.dtype)
        if side == "in" and self.divisors is not None:
            sums = sums / self.divisors.take(segments[:, 0])[:, None]
        joined = joins, sums, out, len(out), width, self.accumulate
        self.rt.launch("matrices", "join", self.dtype, blocks(out.size), 256, joined, LANES=8)

    def forward(self, y: DeviceArray) -> None:
        self._sum("in", [(self._kappa(False), self.features)], y)

    def derivative(self, dgy: DeviceArray) -> None:
        """Compute the derivative of y along the tangents."""
        kappa = None if self.tangent is None else self._kappa(False)
        self._sum("in", [(kappa, self.tangent), (self._kappa(True), self.features)], dgy)

    def by_features(self, second: bool, out: DeviceArray) -> None:
        """Compute the gradient by the features, of first or second order."""
        self._sum("out", [(self._kappa(second), self.gy)], out)

    @functools.cached_property
    def _by_kappa(self) -> DeviceArray:
        """The gradient by kappa of each edge."""
        return self._products(self.features)

    @functools.cached_property
    def _by_kappa_tangent(self) -> DeviceArray | None:
        """Its tangent, None if that is 0."""
        return None if self.tangent is None else self._products(self.tangent)

    def _products(self, features: DeviceArray) -> DeviceArray:
        """Return the sums of features of sources times gradients of destinations by edge."""
        graph, width = self.graph, self.in_features
        found = self.rt.empty((graph.num_edges, width), self.dtype)
        entries, sources = graph._index("id_entries"), graph._index("in_nodes")
        args = (
            graph._index("id_offsets"), entries, sources, graph._index("in_rows"), features,
            required(self.gy), found, graph.num_edges, width,
        )  # fmt: skip
        grid = blocks(found.size)
        self.rt.launch("matrices", "diagonal_products", self.dtype, grid, 256, args, LANES=8)
        return found

    def weight_sum(self, along: bool) -> DeviceArray:
        """Return the gradient by W; batches of edges are summed in float64."""
        pairs = [(self.weighted, self._by_kappa_tangent if along else self._by_kappa)]
        if along and self.tweighted is not None:
            pairs.append((self.tweighted, self._by_kappa))
        total = self.rt.zeros(self.matrix.shape, "d")
        for left, right in pairs:
            if right is None:
                continue
            for start in range(0, len(left), EDGES):
                batch = slice(start, start + EDGES)
                total = total + self.multiply(left[batch].T, right[batch]).astype("d")
        return total

    def by_weighted_layer(self, second: bool) -> DeviceArray:
        pairs = [(self._by_kappa_tangent if second else self._by_kappa, self.matrix)]
        if second and self.matrix_tangent is not None:
            pairs.append((self._by_kappa, self.matrix_tangent))
        found = plus(*(None if g is None else self.multiply(g, w.T) for g, w in pairs))
        if found is None:
            return self.rt.zeros((self.graph.num_edges, self.units), self.dtype)
        return found


def _convolution(rt: Runtime, a: KernelConv) -> _Matrix | _Diagonal:
    return (_Diagonal if a.kernel == DIAGONAL else _Matrix)(rt, a)


def forward(rt: Runtime, a: KernelConv) -> None:
    """Compute y."""
    _convolution(rt, a).forward(a.y)


def backward(rt: Runtime, a: KernelConv) -> None:
    """Compute the gradients by features, layer, factors, weight and bias, as requested."""
    conv = _convolution(rt, a)
    if a.gfeatures is not None:
        conv.by_features(False, a.gfeatures)
    conv.by_matrix(False, a.gweight, a.gbias)
    conv.by_layer(False, a.ghidden_layer, a.gedge_weight)


def double_backward(rt: Runtime, a: KernelConv) -> None:
    """Compute dgy and the second-order gradients by all inputs, as requested."""
    conv = _convolution(rt, a)
    if a.dgy is not None:
        conv.derivative(a.dgy)
    if a.dfeatures is not None:
        conv.by_features(True, a.dfeatures)
    conv.by_matrix(True, a.dweight, a.dbias)
    conv.by_layer(True, a.dhidden_layer, a.dedge_weight)
