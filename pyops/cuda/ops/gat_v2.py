"""Graph attention with scores of whole feature rows (GATv2), on a device.

One pass over the entries computes the scores. Backward sums their gradients over the rows of each
side and recomputes the activation.
"""

from __future__ import annotations

from typing import Any

from .._entry_attention import EntryAttention, phases
from .._heads import WARP
from .._neighbours import THREADS, Rows, blocks
from .._runtime import Runtime

ENTRIES = 256
"""Entries per block in the sum of the gradient by the attention vector."""


class _Ends(EntryAttention):
    """Scores from the sums of the features of both ends and of the edges."""

    def __init__(self, rt: Runtime, a: Any, second: bool = False) -> None:
        super().__init__(rt, a, a.attention.dtype, second)
        sides = "x_src", "x_dst", "edge_features"
        edges = a.edge_features if self.has_edges else None
        self.ends = (
            a.activation, float(a.negative_slope), a.x_src, a.x_dst, edges,
            *map(self.tangent, sides), a.attention, self.tangent("attention"),
        )  # fmt: skip
        (self.values,) = self.features(a.x_src)
        self.moved = next(iter(self.features(self.tangent("x_src"))), None)
        scores, tangents = self.numbers(), self.numbers() if second else None
        grid = blocks(a.num_entries * self.heads, 8)
        self.launch(
            "score", grid, a.num_entries, self.heads, self.width, a.in_nodes, self.owners(),
            a.in_edges, *self.ends, scores, tangents,
        )  # fmt: skip
        self.soften_by(scores, tangents)

    def launch(self, kernel: str, grid: Any, *args: Any, shared: int = 0) -> None:
        self.rt.launch("ends", kernel, self.dtype, grid, THREADS, args, shared)

    def pull(self, x_src: Any, x_dst: Any, attention: Any, edge_features: Any, mask: Any) -> None:
        """Compute the gradients, or their tangents, that are requested."""
        a = self.a
        if x_src is not None:
            terms = self.terms(self.weights, self.tweights, [self.gradients()], [])
            self.weigh(*self.outward(), terms, x_src, a.accumulate)
        by_scores = self.by_scores(mask)
        if x_src is not None:
            rows, places = self.outward()
            edges = self.a.graph._index("out_edges")
            self.pull_side(rows, None, a.out_nodes, edges, places, by_scores, True, x_src)
        if x_dst is not None:
            rows = self.inward()
            self.pull_side(rows, a.in_nodes, None, a.in_edges, None, by_scores, a.accumulate, x_dst)
        if edge_features is not None:
            rows, places = self.of_edges()
            order = places[: a.num_entries] - 1
            self.pull_side(
                rows, a.in_nodes[order], rows.nodes, None, places, by_scores, a.accumulate,
                edge_features,
            )  # fmt: skip
        if attention is not None:
            self.sum_weights(by_scores, attention)

    def pull_side(
        self, rows: Rows, sources: Any, destinations: Any, edges: Any, places: Any,
        by_scores: tuple[Any, Any], accumulate: bool, out: Any,
    ) -> None:  # fmt: skip
        """out (+)= the gradients by the sums of both ends, summed over the rows of a side."""
        chunks, partial = self.chunks(self.parts), self.partial(rows)
        for pieces, units in ((1, rows.pieces), (0, rows.count)):
            self.launch(
                "pull_ends", (blocks(units, WARP), chunks), pieces, rows.count, rows.entries,
                rows.offsets, sources, self.lanes, self.across, self.parts, self.width,
                destinations, edges, places, self.heads, *self.ends, *by_scores, partial,
                accumulate, out,
            )  # fmt: skip

    def sum_weights(self, by_scores: tuple[Any, Any], out: Any) -> None:
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


forward, attention, backward, double_backward = phases(
    _Ends, ("x_src", "x_dst", "attention", "edge_features", "mask")
)
