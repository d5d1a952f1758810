"""Graph attention with scores of whole feature rows (GATv2), on a device.

One pass over the entries computes the scores. Backward sums their gradients over the rows of each
side and recomputes the activation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._entry_attention import EntryAttention
from .._heads import WARP
from .._neighbours import THREADS, Rows, blocks

if TYPE_CHECKING:
    from .._array import DeviceArray, Value
    from .._declared import GatV2
    from .._runtime import Grid, Runtime

ENTRIES = 256
"""Entries per block in the sum of the gradient by the attention vector."""


class _SumAttention(EntryAttention):
    """Scores from the sums of the features of both ends and of the edges."""

    inputs = "x_src", "x_dst", "attention", "edge_features", "mask"
    a: GatV2

    def __init__(self, rt: Runtime, a: GatV2, second: bool = False) -> None:
        super().__init__(rt, a, a.x_src.dtype, second)
        self.ends = (
            a.activation, float(a.negative_slope), a.x_src, a.x_dst, a.edge_features, a.hx_src,
            a.hx_dst, a.hedge_features, a.attention, a.hattention,
        )  # fmt: skip
        self.values, self.tvalues = self.features(a.x_src), self.tangent(a.hx_src)
        scores, tangents = self.by_entry(), self.by_entry() if second else None
        self.launch(
            "score", blocks(a.num_entries, 8), a.num_entries, self.heads, self.width,
            a.in_nodes, self.owners(), a.in_edges, *self.ends, scores, tangents,
        )  # fmt: skip
        self.softmax_of(scores, tangents)

    def launch(self, kernel: str, grid: Grid, *args: Value, shared: int = 0) -> None:
        self.rt.launch("ends", kernel, self.feature_type, grid, THREADS, args, shared)

    def vjp(self, prefix: str) -> None:
        a, (x_src, x_dst, attention, edge_features, mask) = self.a, self.gradients_by_inputs(prefix)
        if x_src is not None:
            terms = self.terms(self.weights, self.tweights, self.gradients(), None)
            self.weighted_sums(*self.outgoing(), terms, x_src, a.accumulate)
        by_scores = self.by_scores(mask)
        if x_src is not None:
            rows, positions = self.outgoing()
            edges = self.graph._index("out_edges")
            self.sum_side(rows, None, a.out_nodes, edges, positions, by_scores, True, x_src)
        if x_dst is not None:
            nodes, edges = a.in_nodes, a.in_edges
            rows = self.rows_of_terms()
            self.sum_side(rows, nodes, None, edges, None, by_scores, a.accumulate, x_dst)
        if edge_features is not None:
            rows, positions = self.of_edges()
            order = positions[: a.num_entries] - 1
            self.sum_side(
                rows, a.in_nodes[order], rows.nodes, None, positions, by_scores, a.accumulate,
                edge_features,
            )  # fmt: skip
        if attention is not None:
            self.sum_weights(by_scores, attention)

    def sum_side(
        self, rows: Rows, sources: DeviceArray | None, destinations: DeviceArray | None,
        edges: DeviceArray | None, positions: DeviceArray | None,
        by_scores: tuple[DeviceArray, DeviceArray | None], accumulate: bool, out: DeviceArray,
    ) -> None:  # fmt: skip
        """`out` (+)= the gradients by the sums of both ends, summed over the rows of a side."""
        chunks, partial = self.chunks(self.parts), self.partial(rows)
        for segments, units in ((1, rows.segments), (0, rows.count)):
            self.launch(
                "ends_vjp", (blocks(units, WARP), chunks), segments, rows.count, rows.entries,
                rows.offsets, sources, self.lanes, self.across, self.parts, self.width,
                destinations, edges, positions, self.heads, *self.ends, *by_scores, partial,
                accumulate, out,
            )  # fmt: skip

    def sum_weights(
        self, by_scores: tuple[DeviceArray, DeviceArray | None], out: DeviceArray
    ) -> None:
        a, size = self.a, self.heads * self.width
        count = -(-a.num_entries // ENTRIES)
        partial = self.rt.empty((count, size), "float64")
        self.launch(
            "sum_weights", (count, -(-size // WARP)), a.num_entries, ENTRIES, self.heads,
            self.width, a.in_nodes, self.owners(), a.in_edges, *self.ends, *by_scores, partial,
            shared=8 * THREADS,
        )  # fmt: skip
        self.run(
            "join_blocks", blocks(size, WARP), count, size, 0, 0, 0, 0, partial, a.accumulate, out
        )


def forward(rt: Runtime, a: GatV2) -> None:
    """Compute y."""
    _SumAttention(rt, a).sum_values(a.y)


def attention(rt: Runtime, a: GatV2) -> None:
    """Compute alpha."""
    _SumAttention(rt, a).store_alpha()


def backward(rt: Runtime, a: GatV2) -> None:
    """Compute the gradients by features, attention and mask, as requested."""
    _SumAttention(rt, a).vjp("g")


def double_backward(rt: Runtime, a: GatV2) -> None:
    """Compute dgy and the second-order gradients by all inputs, as requested."""
    _SumAttention(rt, a, second=True).double_backward()
