"""Convolutions with a kernel network: sums over entries times the last layer.

    Z_i = sum over in(i) of (hidden_e | 1) (x) h_j,  m_i = Z_i W,  W = [V; b_v]

Rows of a graph are split into segments; the Z of a batch of them fits in `WORKSPACE`.
All passes are methods of one class, because they share operands and batches.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

from ._array import DeviceArray, DType, required

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._declared import GnoConv, GnoKernel
    from ._graph import DeviceGraph
    from ._runtime import Runtime

WORKSPACE = 2**27
"""Largest size of a work array in bytes."""
UNITS = 64
"""Hidden units per block of the kernels."""
ROWS = 256
"""Rows of a matrix that a block sums, as in kernels/row_sums.cu."""
Product: TypeAlias = tuple[bool, DeviceArray]
"""Whether to use the derivatives of the sums, and the matrix that multiplies the sums."""


def blocks(number: int, size: int = 256) -> int:
    return -(-number // size)


class RowSums:
    """Sum in float64 of the rows of several matrices, added one by one; `counts` are their rows."""

    def __init__(self, rt: Runtime, counts: Sequence[int], columns: int) -> None:
        self.rt, self.columns, self.done = rt, columns, 0
        self.partial = rt.empty((sum(blocks(count, ROWS) for count in counts), columns), "d")

    def add(self, x: DeviceArray) -> None:
        rows = x.size // self.columns
        grid = blocks(rows, ROWS), blocks(self.columns, 32)
        args = x, self.partial[self.done :], rows, self.columns
        self.rt.launch("row_sums", "add_rows", x.dtype, grid, (32, 8), args)
        self.done += grid[0]

    def store(self, out: DeviceArray, accumulate: bool) -> None:
        args = self.partial, out, len(self.partial), self.columns, accumulate
        grid = blocks(self.columns, 32)
        self.rt.launch("row_sums", "join_rows", out.dtype, grid, (32, 8), args)


class Layer:
    """Hidden layer of a kernel network, with its tangent along the cotangents h."""

    operands: tuple[DeviceArray | None, ...]
    """Coordinates and parameters, and their tangents."""

    def __init__(self, rt: Runtime, a: GnoConv | GnoKernel) -> None:
        self._set(rt, a.params.dtype, a.precision, a.accumulate)
        self.coords, self.params, self.dcoords, self.dparams = (
            a.coords, a.params, a.hcoords, a.hparams
        )  # fmt: skip
        self.length = a.hidden * (a.dim + 1)
        self.operands = self.coords, self.params, self.dcoords, self.dparams
        self.moves = self.dcoords is not None or self.dparams is not None

    def _set(self, rt: Runtime, dtype: DType, precision: str, accumulate: bool) -> None:
        self.rt, self.dtype, self.precision, self.accumulate = rt, dtype, precision, accumulate

    def weight(self, params: DeviceArray, rows: int) -> DeviceArray:
        """Return the last layer of a parameter block, [rows of V and b_v, ...]."""
        return params[self.length :].reshape(rows, -1)

    def multiply(
        self, left: DeviceArray, right: DeviceArray, out: DeviceArray | None = None
    ) -> DeviceArray:
        return self.rt.matmul(left, right, out, self.precision)

    def store(self, out: DeviceArray, start: int, sums: DeviceArray) -> None:
        """Store or add sums at their position in a parameter block."""
        block = out[start : start + sums.size]
        block[...] = block + sums.reshape(-1) if self.accumulate else sums.reshape(-1)


class Convolution(Layer):
    """Convolution of features with a hidden layer over the entries of a graph."""

    graph: DeviceGraph
    features: DeviceArray
    tangent: DeviceArray | None
    gy: DeviceArray | None
    matrix: DeviceArray
    matrix_tangent: DeviceArray | None = None
    given: tuple[DeviceArray | None, DeviceArray | None] = (None, None)
    """A layer given for each edge instead of coordinates, and its derivative."""
    divisors: DeviceArray | None = None
    """Divisors of the sums of each destination."""
    sizes: tuple[int, int, int]
    """Dimension of the coordinates, number of hidden units, activation."""

    def __init__(self, rt: Runtime, a: GnoConv) -> None:
        super().__init__(rt, a)
        self.graph, self.features, self.tangent, self.gy = a.graph, a.features, a.hfeatures, a.gy
        self.in_features, self.out_features = a.in_features, a.out_features
        self.sizes, rows = (a.dim, a.hidden, a.activation), (a.hidden + 1) * a.in_features
        self.matrix = self.weight(a.params, rows)
        if self.dparams is not None:
            self.matrix_tangent = self.weight(self.dparams, rows)

    def transpose(self, matrix: DeviceArray) -> DeviceArray:
        """Return the matrix with features of destinations as rows and of sources as columns."""
        blocks = matrix.reshape(-1, self.in_features, self.out_features)
        return blocks.swapaxes(1, 2).reshape(-1, self.in_features)

    def batches(self, segments: DeviceArray, width: int) -> list[tuple[int, int]]:
        """Return start and stop of each batch of segments."""
        each = (self.sizes[1] + 1) * width * self.features.itemsize
        most = max(1, WORKSPACE // each)
        starts = range(0, len(segments), most)
        return [(start, min(start + most, len(segments))) for start in starts]

    def outer(
        self,
        side: str,
        start: int,
        stop: int,
        features: DeviceArray,
        tangent: DeviceArray | None,
        along: bool,
    ) -> DeviceArray:
        """Return Z of some segments, or its derivative; includes n unless that is always 0."""
        width, hidden = features.shape[1], self.sizes[1]
        alone = self.given[0] is not None or (along and tangent is None)
        units = hidden if alone else hidden + 1
        sums = self.rt.empty((stop - start, units * width), self.dtype)
        across = 16 if width <= 16 else 64
        grid = stop - start, blocks(hidden, UNITS) * blocks(width, across)
        indices = (self.graph._index(f"{side}_{name}") for name in ("segments", "nodes", "edges"))
        args = (
            *indices, *self.operands, *self.given, features, tangent, sums, start, *self.sizes,
            width, along, units,
        )  # fmt: skip
        self.rt.launch("gno", "outer", self.dtype, grid, across * 4, args, WIDTH=across)
        return sums

    @functools.cached_property
    def gm(self) -> DeviceArray:
        """`gy` of the row of each incoming segment, 0 if the row has no entries."""
        gy, segments = required(self.gy), self.graph._index("in_segments")
        if len(segments) > len(gy):
            gy = gy.take(segments[:, 0], axis=0)
        if self.graph._shortest("in"):
            return gy
        full = segments[:, 1] < segments[:, 2]
        return self.rt.xp.where(full[:, None], gy, gy.dtype.type(0))

    def gather(
        self,
        side: str,
        features: DeviceArray,
        tangent: DeviceArray | None,
        products: Sequence[Product],
        y: DeviceArray,
    ) -> None:
        """Compute y (+)= the sums over the rows of a side, multiplied by the matrices."""
        graph, rt = self.graph, self.rt
        segments, joins = (graph._index(f"{side}_{name}") for name in ("segments", "joins"))
        whole = len(segments) == len(y) and graph._shortest(side) > 0 and not self.accumulate
        found = y if whole else rt.empty((len(segments), y.shape[1]), self.dtype)
        if not products:
            found[...] = 0
        for start, stop in self.batches(segments, features.shape[1]):
            for number, (along, matrix) in enumerate(products):
                sums = self.outer(side, start, stop, features, tangent, along)
                if number:
                    found[start:stop] += self.apply(sums, matrix)
                else:
                    self.apply(sums, matrix, found[start:stop])
        if side == "in" and self.divisors is not None:
            found /= self.divisors.take(segments[:, 0])[:, None]
        if not whole:
            args = segments, joins, found, y, len(y), y.shape[1], self.accumulate
            rt.launch("gno", "join", self.dtype, blocks(y.size), 256, args, WIDTH=16)

    def forward(self, y: DeviceArray) -> None:
        self.gather("in", self.features, None, [(False, self.matrix)], y)

    def derivative(self, dgy: DeviceArray) -> None:
        """Compute the derivative of y along the tangents."""
        moves = self.moves or self.tangent is not None
        products = self.products(moves, self.matrix, self.matrix_tangent)
        self.gather("in", self.features, self.tangent, products, dgy)

    def by_features(self, second: bool, out: DeviceArray) -> None:
        """Compute the gradient by the features, of first or second order."""
        matrix, tangent = self.transpose(self.matrix), self.matrix_tangent
        products = [(False, matrix)]
        if second:
            transposed = None if tangent is None else self.transpose(tangent)
            products = self.products(self.moves, matrix, transposed)
        self.gather("out", required(self.gy), None, products, out)

    def products(
        self, moves: bool, matrix: DeviceArray, tangent: DeviceArray | None
    ) -> list[Product]:
        """Return the products of a derivative, by the sums if they have one and by the matrix."""
        by_matrix = [] if tangent is None else [(False, tangent)]
        return [(True, matrix), *by_matrix] if moves else by_matrix

    def apply(
        self, sums: DeviceArray, matrix: DeviceArray, out: DeviceArray | None = None
    ) -> DeviceArray:
        """Return Z W of some rows."""
        return self.multiply(sums, matrix[: sums.shape[1]], out)

    def unfold(self, gm: DeviceArray, matrix: DeviceArray) -> DeviceArray:
        """Return W gm of some rows."""
        return self.multiply(gm, matrix.T)

    def pair(self, sums: DeviceArray, gm: DeviceArray) -> DeviceArray:
        """Return the sum of Z (x) gm over some rows."""
        return self.multiply(sums.T, gm)

    def weight_sum(self, along: bool) -> DeviceArray:
        """Return the gradient by the last layer, without the rows of b_v if Z has none.

        Several batches are summed in float64.
        """
        batches = self.batches(self.gm, self.in_features)
        if not batches:
            return self.rt.zeros(self.matrix.shape, "d")

        def term(start: int, stop: int) -> DeviceArray:
            sums = self.outer("in", start, stop, self.features, self.tangent, along)
            return self.pair(sums, self.gm[start:stop])

        total = term(*batches[0])
        for batch in batches[1:]:
            total = total + term(*batch).astype("d")
        return total

    def weight_gradient(self, along: bool, out: DeviceArray) -> None:
        """Store the gradient by the last layer at its position in `out`."""
        sums = self.weight_sum(along)
        self.store(out, self.length, sums)
        rest = out[self.length + sums.size :]
        if rest.size and not self.accumulate:
            rest[...] = 0

    def vjp(
        self,
        second: bool,
        by_unit: DeviceArray | None,
        by_entry: DeviceArray | None,
        sums: RowSums | None,
    ) -> None:
        """Propagate the gradients of the destinations to the layer of each entry."""
        rt, hidden, graph = self.rt, self.sizes[1], self.graph
        names = "in_segments", "in_nodes", "in_edges"
        segments, nodes, edges = map(graph._index, names)
        for start, stop in self.batches(segments, self.in_features):
            gm, tangents = self.gm[start:stop], None
            weights = self.unfold(gm, self.matrix)
            if second and self.matrix_tangent is not None:
                tangents = self.unfold(gm, self.matrix_tangent)
            by_segment = None
            if sums is not None:
                by_segment = rt.empty((stop - start, sums.columns), self.dtype)
            args = (
                segments, nodes, edges, *self.operands, self.features, self.tangent, weights,
                tangents, by_unit, by_entry, by_segment, start, *self.sizes, self.in_features,
                graph.num_entries, second,
            )  # fmt: skip
            grid = stop - start, blocks(hidden, UNITS)
            rt.launch("gno", "layer_vjp", self.dtype, grid, 256, args, WIDTH=16)
            if sums is not None and by_segment is not None:
                sums.add(by_segment)

    def sum_entries(self, by_entry: DeviceArray, out: DeviceArray, accumulate: bool) -> None:
        """`out` (+)= the sums of [layers, entries, k] over layers and the entries of each edge."""
        graph = self.graph
        args = (
            graph._index("id_offsets"), graph._index("id_entries"), by_entry, out, graph.num_edges,
            graph.num_entries, len(by_entry), out.shape[1], accumulate,
        )  # fmt: skip
        self.rt.launch("gno", "by_edge", self.dtype, blocks(out.size), 256, args, WIDTH=16)

    def layer_gradient(
        self, second: bool, gcoords: DeviceArray | None, gparams: DeviceArray | None
    ) -> None:
        """Compute the requested gradients by coords and by the first layer."""
        dim, hidden, _ = self.sizes
        by_entry = sums = None
        if gcoords is not None:
            shape = blocks(hidden, UNITS), self.graph.num_entries, dim
            by_entry = self.rt.empty(shape, self.dtype)
        if gparams is not None:
            batches = self.batches(self.gm, self.in_features)
            sums = RowSums(self.rt, [stop - start for start, stop in batches], self.length)
        self.vjp(second, None, by_entry, sums)
        if gcoords is not None and by_entry is not None:
            self.sum_entries(by_entry, gcoords, self.accumulate)
        if gparams is not None and sums is not None:
            sums.store(gparams, self.accumulate)
