"""Convolutions with a kernel network: sums over entries times the last layer.

    Z_i = sum over in(i) of (hidden_e | 1) (x) h_j,  m_i = Z_i W,  W = [V; b_v]

Rows of a graph are split into segments ("pieces"); the Z of a batch of them fits in `WORKSPACE`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ._runtime import Runtime

WORKSPACE = 2**27
"""Largest size of a work array in bytes."""
UNITS = 64
"""Hidden units per block of the kernels."""
ROWS = 256
"""Rows of a matrix that a block sums, as in kernels/row_sums.cu."""
Product = tuple[bool, Any]
"""Whether to use the derivatives of the sums, and the matrix that multiplies the sums."""


def blocks(number: int, size: int = 256) -> int:
    return -(-number // size)


class RowSums:
    """Sum in float64 of the rows of several matrices, added one by one; `counts` are their rows."""

    def __init__(self, rt: Runtime, counts: Sequence[int], columns: int) -> None:
        self.rt, self.columns, self.done = rt, columns, 0
        self.parts = rt.empty((sum(blocks(count, ROWS) for count in counts), columns), "d")

    def add(self, x: Any) -> None:
        rows = x.size // self.columns
        grid = blocks(rows, ROWS), blocks(self.columns, 32)
        held = [x, self.parts[self.done :], rows, self.columns]
        self.rt.launch("row_sums", "add_rows", x.dtype, grid, (32, 8), held)
        self.done += grid[0]

    def store(self, out: Any, accumulate: bool) -> None:
        held = [self.parts, out, len(self.parts), self.columns, accumulate]
        grid = blocks(self.columns, 32)
        self.rt.launch("row_sums", "join_rows", out.dtype, grid, (32, 8), held)


class Layer:
    """Hidden layer of a kernel network, with its tangent along the cotangents h."""

    def __init__(self, rt: Runtime, a: SimpleNamespace) -> None:
        self.rt, self.a, self.dtype = rt, a, a.params.dtype
        self.coords, self.params = a.coords, a.params
        self.dcoords, self.dparams = getattr(a, "hcoords", None), getattr(a, "hparams", None)
        self.length = a.hidden * (a.dim + 1)
        self.operands = self.coords, self.params, self.dcoords, self.dparams
        self.moves = self.dcoords is not None or self.dparams is not None

    def weight(self, params: Any, rows: int) -> Any:
        """Return the last layer of a parameter block, [rows of V and b_v, ...]."""
        return params[self.length :].reshape(rows, -1)

    def multiply(self, left: Any, right: Any, out: Any = None) -> Any:
        return self.rt.matmul(left, right, out, self.a.precision)

    def store(self, out: Any, start: int, sums: Any) -> None:
        """Store or add sums at their position in a parameter block."""
        part = out[start : start + sums.size]
        part[...] = part + sums.reshape(-1) if self.a.accumulate else sums.reshape(-1)


class Convolution(Layer):
    """Convolution of features with a hidden layer over the entries of a graph."""

    given: tuple[Any, Any] = (None, None)
    """A layer given for each edge instead of coordinates, and its derivative."""
    divisors: Any = None
    """Divisors of the sums of each destination."""

    def __init__(self, rt: Runtime, a: SimpleNamespace) -> None:
        super().__init__(rt, a)
        self.tangent = getattr(a, "hfeatures", None)
        self.sizes, self.gy = (a.dim, a.hidden, a.activation), getattr(a, "gy", None)
        inward, units = a.in_features, a.hidden + 1
        self.matrix = self.weight(a.params, units * inward)
        self.matrix_tangent: Any = None
        if self.dparams is not None:
            self.matrix_tangent = self.weight(self.dparams, units * inward)

    def turn(self, matrix: Any) -> Any:
        """Return the matrix with features of destinations as rows and of sources as columns."""
        blocks = matrix.reshape(-1, self.a.in_features, self.a.out_features)
        return blocks.swapaxes(1, 2).reshape(-1, self.a.in_features)

    def parts(self, pieces: Any, width: int) -> list[tuple[int, int]]:
        """Return start and stop of each batch of segments."""
        each = (self.sizes[1] + 1) * width * self.dtype.itemsize
        most = max(1, WORKSPACE // each)
        starts = range(0, len(pieces), most)
        return [(start, min(start + most, len(pieces))) for start in starts]

    def outer(
        self, side: str, start: int, stop: int, features: Any, tangent: Any, along: bool
    ) -> Any:
        """Return Z of some segments, or its derivative; includes n unless that is always 0."""
        graph, width, hidden = self.a.graph, features.shape[1], self.sizes[1]
        alone = self.given[0] is not None or (along and tangent is None)
        units = hidden if alone else hidden + 1
        sums = self.rt.empty((stop - start, units * width), self.dtype)
        across = 16 if width <= 16 else 64
        self.rt.launch(
            "gno",
            "outer",
            self.dtype,
            (stop - start, blocks(hidden, UNITS) * blocks(width, across)),
            across * 4,
            [
                *(graph._index(f"{side}_{name}") for name in ("pieces", "nodes", "edges")),
                *self.operands,
                *self.given,
                features,
                tangent,
                sums,
                start,
                *self.sizes,
                width,
                along,
                units,
            ],
            WIDTH=across,
        )
        return sums

    @functools.cached_property
    def gm(self) -> Any:
        """gy of the row of each incoming segment, 0 if the row has no entries."""
        graph = self.a.graph
        gy: Any = self.gy
        pieces = graph._index("in_pieces")
        if len(pieces) > len(gy):
            gy = gy.take(pieces[:, 0], axis=0)
        if graph.shortest("in"):
            return gy
        full = pieces[:, 1] < pieces[:, 2]
        return self.rt.xp.where(full[:, None], gy, self.dtype.type(0))

    def gather(
        self, side: str, features: Any, tangent: Any, products: Sequence[Product], y: Any
    ) -> None:
        """Compute y (+)= the sums over the rows of a side, multiplied by the matrices."""
        a, rt = self.a, self.rt
        pieces, joins = (a.graph._index(f"{side}_{name}") for name in ("pieces", "joins"))
        whole = len(pieces) == len(y) and a.graph.shortest(side) > 0 and not a.accumulate
        found = y if whole else rt.empty((len(pieces), y.shape[1]), self.dtype)
        if not products:
            found[...] = 0
        for start, stop in self.parts(pieces, features.shape[1]):
            for number, (along, matrix) in enumerate(products):
                sums = self.outer(side, start, stop, features, tangent, along)
                if number:
                    found[start:stop] += self.apply(sums, matrix)
                else:
                    self.apply(sums, matrix, found[start:stop])
        if side == "in" and self.divisors is not None:
            found /= self.divisors.take(pieces[:, 0])[:, None]
        if not whole:
            sizes = len(y), y.shape[1], a.accumulate
            held = [pieces, joins, found, y, *sizes]
            rt.launch("gno", "join", self.dtype, blocks(y.size), 256, held, WIDTH=16)

    def apply(self, sums: Any, matrix: Any, out: Any = None) -> Any:
        """Return Z W of some rows."""
        return self.multiply(sums, matrix[: sums.shape[1]], out)

    def unfold(self, gm: Any, matrix: Any) -> Any:
        """Return W gm of some rows."""
        return self.multiply(gm, matrix.T)

    def pair(self, sums: Any, gm: Any) -> Any:
        """Return the sum of Z (x) gm over some rows."""
        return self.multiply(sums.T, gm)

    def weight_sum(self, along: bool) -> Any:
        """Return the gradient by the last layer, without the rows of b_v if Z has none.

        Several batches are summed in float64.
        """
        a, parts = self.a, self.parts(self.gm, self.a.in_features)
        if not parts:
            return self.rt.zeros(self.matrix.shape, "d")

        def term(start: int, stop: int) -> Any:
            sums = self.outer("in", start, stop, a.features, self.tangent, along)
            return self.pair(sums, self.gm[start:stop])

        total = term(*parts[0])
        for part in parts[1:]:
            total = total + term(*part).astype("d")
        return total

    def weight_gradient(self, along: bool, out: Any) -> None:
        """Store the gradient by the last layer at its position in `out`."""
        sums = self.weight_sum(along)
        self.store(out, self.length, sums)
        rest = out[self.length + sums.size :]
        if rest.size and not self.a.accumulate:
            rest[...] = 0

    def pull(self, second: bool, by_unit: Any, by_entry: Any, sums: Any) -> None:
        """Propagate the gradients of the destinations to the layer of each entry (its VJP)."""
        a, rt, hidden = self.a, self.rt, self.sizes[1]
        names = "in_pieces", "in_nodes", "in_edges"
        pieces, nodes, edges = map(a.graph._index, names)
        for start, stop in self.parts(pieces, a.in_features):
            gm, moved = self.gm[start:stop], None
            weights = self.unfold(gm, self.matrix)
            if second and self.matrix_tangent is not None:
                moved = self.unfold(gm, self.matrix_tangent)
            by_piece = None
            if sums is not None:
                by_piece = rt.empty((stop - start, sums.columns), self.dtype)
            rt.launch(
                "gno",
                "pull",
                self.dtype,
                (stop - start, blocks(hidden, UNITS)),
                256,
                [
                    pieces,
                    nodes,
                    edges,
                    *self.operands,
                    a.features,
                    self.tangent,
                    weights,
                    moved,
                    by_unit,
                    by_entry,
                    by_piece,
                    start,
                    *self.sizes,
                    a.in_features,
                    a.num_entries,
                    second,
                ],
                WIDTH=16,
            )
            if sums is not None:
                sums.add(by_piece)

    def sum_entries(self, by_entry: Any, out: Any, accumulate: bool) -> None:
        """out (+)= the sums of [layers, entries, k] over layers and the entries of each edge."""
        a = self.a
        sizes = a.num_edges, a.num_entries, len(by_entry), out.shape[1], accumulate
        held = [a.id_offsets, a.id_entries, by_entry, out, *sizes]
        self.rt.launch("gno", "by_edge", self.dtype, blocks(out.size), 256, held, WIDTH=16)

    def layer_gradient(self, second: bool, gcoords: Any, gparams: Any) -> None:
        """Compute the requested gradients by coords and by the first layer."""
        a, rt = self.a, self.rt
        by_entry = sums = None
        if gcoords is not None:
            by_entry = rt.empty((blocks(a.hidden, UNITS), a.num_entries, a.dim), self.dtype)
        if gparams is not None:
            parts = self.parts(self.gm, a.in_features)
            sums = RowSums(rt, [stop - start for start, stop in parts], self.length)
        self.pull(second, None, by_entry, sums)
        if gcoords is not None:
            self.sum_entries(by_entry, gcoords, a.accumulate)
        if sums is not None:
            sums.store(gparams, a.accumulate)
