"""Kernels by heads on a device: softmax over the entries of rows, and sums head by head.

Launches kernels/attend.cu and kernels/scores.cu.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from . import _neighbours as neighbours
from ._array import DeviceArray, DType, Value, real_type
from ._neighbours import THREADS, Rows, blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._declared import Gat, GatV2, TransformerConv
    from ._graph import DeviceGraph
    from ._runtime import Grid, Runtime

WARP = 32
WIDE = "attend_vjp", "gather", "multiply", "average"
"""Kernels that read features; the others read values by entry and head."""
ALPHA, MEANS, WEIGHTS, SUMS, BACK = range(1, 6)


@dataclass(frozen=True)
class Features:
    """Features by heads at the other ends of entries, and a common factor."""

    array: DeviceArray | None
    stride: int
    head_stride: int
    scale: float = 1.0
    of_edges: DeviceArray | None = None
    """Edge features to add, [edges, heads, width]; either of `array` and this may be None."""

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.array, self.stride, self.head_stride, self.scale


Term: TypeAlias = tuple[DeviceArray | None, Features]
"""Weights of entries, and the features that they weight."""
Tangents: TypeAlias = tuple[DeviceArray | None, ...]
"""Tangents of the scores of sources, destinations and edges, and of the mask."""


@dataclass(frozen=True)
class Intermediates:
    """Values that earlier steps over the entries have computed."""

    positions: DeviceArray | None = None
    """Positions of the entries in `dots`, 1-based; if None, those of CSC order."""
    tangents: Tangents | None = None
    mean: DeviceArray | None = None
    dots: DeviceArray | None = None
    tdots: DeviceArray | None = None
    sums: DeviceArray | None = None


def _power(n: int) -> int:
    """Return the smallest power of two >= n."""
    return 1 << max(0, n - 1).bit_length()


class Heads:
    """Launches of kernels on arrays by entry and head, and on features of a width for each head.

    `feature_type` is their type, on which the number of columns per lane and of `slots` depends, as
    in kernels/features.cuh.
    """

    def __init__(
        self, rt: Runtime, graph: DeviceGraph, features: DType, heads: int, width: int
    ) -> None:
        self.rt, self.graph, self.feature_type = rt, graph, features
        self.dtype = real_type(features)
        vector = 8 if self.dtype != features else 4
        self.slots = 8 // vector
        self.heads, self.width = heads, width
        self.num_entries = graph.num_entries
        self.lanes = min(WARP, _power(-(-width // vector)))
        self.across = min(WARP // self.lanes, _power(-(-heads // self.slots)))
        self.parts = -(-width // (self.lanes * vector))
        self.incoming = neighbours.incoming(graph, nodes=graph._index("in_nodes"))

    def run(self, kernel: str, grid: Grid, *args: Value, shared: int = 0) -> None:
        source = "attend" if kernel in WIDE else "scores"
        self.rt.launch(source, kernel, self.feature_type, grid, THREADS, args, shared)

    def by_row(self, count: int, heads: int | None = None) -> DeviceArray:
        """Return an uninitialised array with a value for each row and head."""
        return self.rt.empty((count, self.heads if heads is None else heads), self.dtype)

    def by_entry(self, heads: int | None = None) -> DeviceArray:
        return self.by_row(self.num_entries, heads)

    def chunks(self, parts: int) -> int:
        """Return the number of warps per row, for these heads and parts of a head."""
        return -(-self.heads // (self.slots * self.across)) * parts

    def gather(self, kernel: str, rows: Rows, parts: int, *args: Value) -> None:
        """Launch a kernel for the segments of long rows, then for the rows."""
        chunks = self.chunks(parts)
        for segments, units in ((1, rows.segments), (0, rows.count)):
            self.run(
                kernel, (blocks(units, WARP), chunks), segments, rows.count, rows.entries,
                rows.offsets, rows.nodes, self.lanes, self.across, parts, self.width, *args,
            )  # fmt: skip

    def weighted_sums(
        self, rows: Rows, positions: DeviceArray | None, terms: Sequence[Term], out: DeviceArray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """`out` (+)= the sums over the rows of features times weights, 0 without terms.

        Weights are in the order of the rows, or at `positions`, 1-based.
        """
        if not terms and not accumulate:
            out[...] = 0
        for first in range(0, len(terms), 2):
            some: list[tuple[Value, ...]] = [
                (weights, *of.arguments, of.of_edges) for weights, of in terms[first : first + 2]
            ]
            some += [(None, None, 0, 0, 0.0, None)] * (2 - len(some))
            self.gather(
                "gather", rows, self.parts, positions, self.heads, rows.edges, *some[0], *some[1],
                self.partial(rows), accumulate or first > 0, out,
            )  # fmt: skip

    def partial(self, rows: Rows) -> DeviceArray | None:
        """Return space for the sums of the segments of long rows, if there are any."""
        return rows.partial(self.rt, self.heads * self.width, self.dtype)

    def by_head(self, array: DeviceArray | None) -> Features:
        """Return features whose heads are side by side."""
        return Features(array, self.heads * self.width, self.width)

    def owners(self) -> DeviceArray:
        return neighbours.owners(self.graph)

    def sum(
        self,
        rows: Rows,
        table: DeviceArray,
        out: DeviceArray | None = None,
        accumulate: bool = False,
    ) -> DeviceArray:
        """Return the sums over rows of a table of entries."""
        if out is None:
            out = self.by_row(rows.count, table.shape[1])
        neighbours.add_table(self.rt, rows, table, out, accumulate)
        return out

    def sum_incoming(self, table: DeviceArray) -> DeviceArray:
        return self.sum(neighbours.incoming(self.graph), table)

    def edge_rows(self) -> Rows:
        return neighbours.of_edges(self.graph, edges=self.graph._index("id_entries"))

    def dot(
        self, sources: DeviceArray, destinations: DeviceArray, of: Features, x: Features,
        dots: DeviceArray, *, tangent: DeviceArray | None = None, other: Features | None = None,
        other_dots: DeviceArray | None = None,
    ) -> None:  # fmt: skip
        """Store the products of features of destinations and of sources, and their derivatives.

        Tangents of either have the layout of the features.
        """
        entries, tx = self.num_entries, other or Features(None, 0, 0)
        by_edges = x.of_edges is not None or tx.of_edges is not None
        self.run(
            "multiply", blocks(entries, 8), entries, self.heads, self.width, sources,
            destinations, self.graph._index("in_edges") if by_edges else None, *of.arguments,
            tangent, x.array, x.stride, x.head_stride, x.of_edges, tx.array, tx.of_edges, dots,
            other_dots,
        )  # fmt: skip


class Softmax(Heads):
    """Softmax of scores over the incoming entries of each destination."""

    scores: tuple[Value, ...]
    """Heads, activation, slope; scores of sources, destinations and edges; factors of edges; the
    largest score of each destination and one over its sum of exponentials."""
    scores_by_entry = False
    """Whether the edge scores are stored by entry instead of by edge."""

    def softmax(self, weights: DeviceArray | None = None) -> None:
        """Compute the largest scores and sums; `weights`, if given, gets factor times alpha."""
        rows, segments = self.incoming, self.incoming.segments
        largest, inverse = self.by_row(rows.count), self.by_row(rows.count)
        partial = rows.partial(self.rt, 2 * self.heads, self.dtype)
        for of_segments, units in ((1, segments), (0, rows.count)):
            self.run(
                "softmax", blocks(units, WARP), of_segments, rows.count, rows.entries,
                rows.offsets, rows.nodes, self.graph._index("in_edges"), self.scores_by_entry,
                *self.scores, None, None, partial, largest, inverse,
                None if segments else weights,
            )  # fmt: skip
        self.scores = *self.scores, largest, inverse
        if segments and weights is not None:
            self.entry_step(WEIGHTS, first=weights)

    def entry_step(
        self,
        step: int,
        known: Intermediates | None = None,
        *,
        first: DeviceArray,
        second: DeviceArray | None = None,
        masked: DeviceArray | None = None,
    ) -> None:
        """Launch a step of `entries_alone`."""
        known, entries = known or Intermediates(), self.num_entries
        self.run(
            "entries_alone", blocks(entries * self.heads, 1), step, known.tangents is not None,
            self.scores_by_entry, entries, self.incoming.nodes, self.graph._index("in_edges"),
            self.owners(), known.positions,
            *self.scores, *(known.tangents or (None,) * 4), known.mean, known.dots, known.tdots,
            known.sums, first, second, masked,
        )  # fmt: skip


class Attention(Softmax):
    """Shared parts of the attention operators: mask, heads side by side or averaged."""

    def __init__(self, rt: Runtime, a: Gat | GatV2 | TransformerConv, features: DType) -> None:
        super().__init__(rt, a.graph, features, a.heads, a.width)
        self.a, self.has_edges = a, a.edge_features is not None

    def gradients(self) -> Features:
        """Return gy by heads."""
        head_stride, scale = (self.width, 1.0) if self.a.concat else (0, 1 / self.heads)
        return Features(self.a.gy, self.a.out_width, head_stride, scale)

    def sum_sources(self, terms: Sequence[Term], out: DeviceArray) -> None:
        """`out` (+)= the weighted sums of source features by heads, side by side or averaged."""
        a = self.a
        if a.concat:
            self.weighted_sums(self.rows_of_terms(), None, terms, out, a.accumulate)
            return
        sums = self.by_row(a.num_dst, self.heads * self.width)
        self.weighted_sums(self.rows_of_terms(), None, terms, sums, False)
        args = a.num_dst, self.heads, self.width, sums, a.accumulate, out
        self.run("average", blocks(a.num_dst * self.width, 1), *args)

    def rows_of_terms(self) -> Rows:
        """Return the incoming rows, with the edges if terms have features of edges."""
        return self.incoming
