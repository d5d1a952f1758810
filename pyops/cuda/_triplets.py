"""Pairs of edges that meet at a node, on a device: launches of kernels/triplets_*.cu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _neighbours as neighbours
from ._array import DeviceArray, Value, plus
from ._convolution import RowSums
from ._neighbours import blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._declared import DimenetAggregate
    from ._runtime import Grid, Runtime

WARP, CHUNK, NODE_THREADS = 32, 8, 128
MOST = 2**24
"""Most elements of the warps' separate sums of the gradient by B."""
WARPS = 2**14
"""Most warps with separate sums."""


class Weights:
    """A and B of a block [A; B], or of its tangent."""

    def __init__(self, a: DimenetAggregate, block: DeviceArray) -> None:
        degrees, radial = a.num_spherical, a.num_radial
        self.a = block[: degrees * radial].reshape(degrees, radial, a.middle)
        self.b = block[degrees * radial :]


class Triplets:
    """Shared state of the phases: sizes, directions, T; and tangents, None where absent."""

    def __init__(self, rt: Runtime, a: DimenetAggregate) -> None:
        self.rt, self.a, self.xp = rt, a, rt.xp
        self.dtype = a.vectors.dtype
        self.degrees = next(n for n in (4, 8, 16, 32) if a.num_spherical <= n)
        self.block = WARP if self.degrees > 8 else 2 * WARP
        self.weights = Weights(a, a.weights)
        self.tweights = None if a.hweights is None else Weights(a, a.hweights)
        self.tb = None if self.tweights is None else self.tweights.b
        self.u, self.tu = self._directions(a.hvectors)
        self.t = self._through_a(a.radial, self.weights)
        self.tt = plus(
            None if a.hradial is None else self._through_a(a.hradial, self.weights),
            None if self.tweights is None else self._through_a(a.radial, self.tweights),
        )
        self.arguments = (
            a.num_entries, a.num_dst, a.in_offsets, a.in_nodes, a.in_edges,
            neighbours.owners(a.graph), a.exclude, a.reverse if a.exclude == 3 else None, self.u,
            self.tu,
        )  # fmt: skip

    def empty(self, *shape: int) -> DeviceArray:
        return self.rt.empty(shape, self.dtype)

    def run(
        self, kernel: str, grid: Grid, *args: Value, shared: int = 0, threads: int = 256
    ) -> None:
        source = "triplets_back" if kernel.startswith("pairs_vjp") else "triplets_into"
        self.rt.launch(
            source, kernel, self.dtype, grid, threads, args, shared, DEGREES=self.degrees
        )

    def multiply(self, left: DeviceArray, right: DeviceArray) -> DeviceArray:
        return self.rt.matmul(left, right, precision=self.a.precision)

    def _directions(self, tangents: DeviceArray | None) -> tuple[DeviceArray, DeviceArray | None]:
        edges = self.a.num_edges
        u = self.empty(edges, 4)
        tu = None if tangents is None else self.empty(edges, 4)
        self.run("directions", blocks(edges, 1), edges, self.a.vectors, tangents, u, tu)
        return u, tu

    def by_degree(self, radial: DeviceArray) -> DeviceArray:
        """Return radial parts as [edge, degree, n]."""
        return radial.reshape(len(radial), self.a.num_spherical, self.a.num_radial)

    def _through_a(self, radial: DeviceArray, weights: Weights) -> DeviceArray:
        """Return A_l R_l of all edges, [edge, degree, middle]."""
        product = self.multiply(self.by_degree(radial).transpose(1, 0, 2), weights.a)
        return self.xp.ascontiguousarray(product.transpose(1, 0, 2))

    def by_pairs(self, kernel: str, units: int, pair: int, *args: Value) -> None:
        """Launch a kernel with `units` warps, with `pair` shared-memory elements per pair."""
        bytes_of_warp = (WARP * pair + WARP) * self.dtype.itemsize
        warps = max(1, min(NODE_THREADS // WARP, (96 << 10) // bytes_of_warp))
        grid, shared = (-(-units // warps), self.parts), warps * bytes_of_warp
        self.run(kernel, grid, *self.arguments, *args, shared=shared, threads=warps * WARP)

    @property
    def parts(self) -> int:
        """Number of channel blocks."""
        return -(-self.a.channels // self.block)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.a.num_spherical, self.a.channels, self.a.middle

    def incoming_pairs(
        self,
        second: bool,
        gy: DeviceArray | None,
        y: DeviceArray | None,
        gu: DeviceArray | None = None,
        tgu: DeviceArray | None = None,
    ) -> None:
        """Compute y of entries, and gradients by their directions, see `pairs_into`."""
        a = self.a
        args: tuple[Value, ...]
        if second:
            args = (
                self.t, self.tt, a.embedding, a.hembedding, self.weights.b, self.tb, gy, y, gu,
                tgu,
            )  # fmt: skip
        else:
            args = self.t, a.embedding, self.weights.b, gy, y, gu
        sets, orders = (4, 3) if second else (2, 2)
        pair = (sets * CHUNK + 6 + orders * self.degrees + 1) | 1
        kernel = "pairs_into_second" if second else "pairs_into"
        self.by_pairs(kernel, a.num_entries, pair, a.out_entries, *self.sizes, *args)

    @property
    def each(self) -> int:
        """Entries per warp in the sums of the gradient by B."""
        a = self.a
        warps = max(1, min(WARPS, MOST // (a.channels * a.middle)))
        return max(1, -(-a.num_entries // warps))

    def outgoing_pairs(
        self,
        second: bool,
        each: int,
        gx: DeviceArray | None,
        gt: DeviceArray | None,
        gb: DeviceArray | None,
        gu: DeviceArray | None = None,
        tgu: DeviceArray | None = None,
    ) -> None:
        """Compute the gradients by the factors of Q, and by directions, see `pairs_vjp`."""
        a = self.a
        sizes = a.num_src, a.out_offsets, a.out_nodes, a.out_edges, each, *self.sizes
        units = -(-a.num_entries // each)
        args: tuple[Value, ...]
        if second:
            args = (
                self.t, self.tt, a.embedding, a.hembedding, self.weights.b, self.tb, a.gy, gx, gt,
                gb, gu, tgu,
            )  # fmt: skip
        else:
            args = self.t, a.embedding, self.weights.b, a.gy, gx, gt, gb, gu
        pair = (3 if second else 2) * self.degrees + 7
        self.by_pairs("pairs_vjp_second" if second else "pairs_vjp", units, pair, *sizes, *args)

    def sum_by_edge(self, table: DeviceArray, out: DeviceArray, accumulate: bool) -> None:
        """Sum over the entries of each edge, and over the channel blocks of each entry."""
        if table.ndim == 3:
            table = table[:, 0] if table.shape[1] == 1 else table.sum(1)
        rows = neighbours.of_edges(self.a.graph, edges=self.a.id_entries)
        neighbours.add_table(self.rt, rows, table, out, accumulate)

    def sum_rows(self, table: DeviceArray) -> DeviceArray:
        """Return the sum of the rows of a table."""
        out = self.empty(table.shape[1])
        sums = RowSums(self.rt, [len(table)], len(out))
        sums.add(table)
        sums.store(out, False)
        return out

    def by_vectors(self, by_direction: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Propagate gradients by the directions of entries, with tangents or not, to vectors."""
        a, sums = self.a, [self.empty(self.a.num_edges, 3) for _ in by_direction]
        for by_entry, by_edge in zip(by_direction, sums, strict=True):
            self.sum_by_edge(by_entry, by_edge, False)
        args = a.num_edges, self.u, self.tu, sums[0], sums[1] if len(sums) > 1 else None
        self.run("by_vectors", blocks(a.num_edges, 1), *args, a.accumulate, out)
