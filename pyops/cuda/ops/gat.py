"""Graph attention on a device.

Forward gathers the neighbour features once. Backward gathers the gradients of the destinations
once more, by their sources. The weights, [entries, heads], are kept for the duration of a call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import _neighbours as neighbours
from .._arguments import Written
from .._heads import ALPHA, BACK, MEANS, SUMS, WARP, WEIGHTS, Attention, Intermediates
from .._neighbours import THREADS, blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._array import DeviceArray, Value
    from .._declared import Gat
    from .._runtime import Runtime

SIDES = "x_src", "x_dst", "edge_features"
BY_SCORES = *SIDES, "attention"
"""Inputs that the scores depend on."""
NOTHING = 0, 0, None, None, None


class _NodeAttention(Attention):
    """Shared state of the phases: sizes, scores, softmax."""

    a: Gat

    def __init__(self, rt: Runtime, a: Gat) -> None:
        super().__init__(rt, a, a.x_src.dtype)
        by_side = [self.by_row(rows) for rows, _ in self.sides()]
        self.project(a.attention, "", False, by_side)
        self.scores = (
            a.heads, a.activation, float(a.negative_slope), *self.with_edges(by_side), a.mask
        )  # fmt: skip

    def weights(self) -> DeviceArray:
        """Compute the softmax and return the mask times alpha."""
        weights = self.by_entry()
        self.softmax(weights)
        return weights

    def blocks_of(self, attention: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Return a_src, a_dst, a_edge."""
        flat, size = attention.reshape(-1), self.heads * self.width
        return flat[:size], flat[size : 2 * size], flat[2 * size :]

    def sides(self) -> list[tuple[int, int]]:
        """Return rows and width of each side."""
        a = self.a
        edges = a.num_edges if self.has_edges else 0
        return [(a.num_src, a.width), (a.num_dst, a.width), (edges, a.edge_width)]

    def with_edges(self, by_side: list[DeviceArray]) -> list[DeviceArray | None]:
        return [*by_side[:2], by_side[2] if self.has_edges else None]

    def project(
        self, attention: DeviceArray, prefix: str, accumulate: bool, out: list[DeviceArray]
    ) -> None:
        """Compute the products of the features, or of their tangents, with an attention block."""
        args: list[Value] = []
        units = 0
        for name, (rows, width), weights, scores in zip(
            SIDES, self.sides(), self.blocks_of(attention), out, strict=True
        ):
            features = self.a.array(prefix + name)
            if rows and features is not None:
                args += [rows, width, features, weights, scores]
                units += rows * self.heads
            else:
                args += NOTHING
        self.run("project", blocks(units, 8), self.heads, 7 * accumulate, *args)

    def to_features(
        self, attention: DeviceArray, prefix: str, by_sides: Sequence[DeviceArray | None],
        written: Written,
    ) -> None:  # fmt: skip
        """Add gradients by the scores of each side, times an attention block, to the features."""
        args: list[Value] = []
        units = adds = 0
        for side, (name, (rows, width), weights, by_scores) in enumerate(
            zip(SIDES, self.sides(), self.blocks_of(attention), by_sides, strict=True)
        ):
            gradient = self.a.array(prefix + name)
            if rows and gradient is not None:
                args += [rows, width, gradient, weights, by_scores]
                adds += written(prefix + name) << side
                units += rows * self.heads
            else:
                args += NOTHING
        self.run("spread", blocks(units, 8), self.heads, adds, *args)

    def to_block(
        self, prefix: str, by_sides: Sequence[DeviceArray | None], out: DeviceArray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """`out` (+)= the gradients by the attention block: scores times features or tangents."""
        a = self.a
        each = max(64, -(-max(a.num_src, a.num_dst) // 128))
        args: list[Value] = []
        counts, sizes = [], []
        for name, (rows, width), by_scores in zip(SIDES, self.sides(), by_sides, strict=True):
            features, used = a.array(prefix + name), bool(rows and width)
            used = used and features is not None
            args += [rows, width, features, None, by_scores] if used else NOTHING
            counts.append(-(-rows // each) if used else 0)
            sizes.append(self.heads * width)
        pairs = list(zip(counts, sizes, strict=True))
        partial = self.rt.empty(sum(count * size for count, size in pairs), "float64")
        grid = sum(counts), -(-self.heads * max(a.width, a.edge_width) // WARP)
        self.run("sum_blocks", grid, self.heads, each, *args, partial, shared=8 * THREADS)
        joined = [number for pair in pairs for number in pair]
        args = [*joined, partial, accumulate, out]
        self.run("join_blocks", blocks(sum(sizes), WARP), *args)

    def wants(self, prefix: str, names: Sequence[str] = BY_SCORES) -> bool:
        """Return whether a gradient by one of these inputs is requested."""
        return any(self.a.array(prefix + name) is not None for name in names)


def forward(rt: Runtime, a: Gat) -> None:
    """Compute y."""
    gat = _NodeAttention(rt, a)
    gat.sum_sources([(gat.weights(), gat.by_head(a.x_src))], a.y)


def attention(rt: Runtime, a: Gat) -> None:
    """Compute alpha."""
    gat = _NodeAttention(rt, a)
    gat.softmax()
    gat.entry_step(ALPHA, first=a.alpha)


def backward(rt: Runtime, a: Gat) -> None:
    """Compute the gradients by features, attention and mask, as requested."""
    gat, written = _NodeAttention(rt, a), Written(a)
    weights, dots = gat.weights(), gat.by_entry()
    rows = neighbours.outgoing(a.graph, nodes=a.out_nodes)
    positions, accumulate = a.graph._index("out_entries"), written("gx_src")
    if gat.parts == 1:
        gat.gather(
            "attend_vjp", rows, 1, positions, gat.heads, weights, *gat.gradients().arguments,
            a.x_src, dots, gat.partial(rows), accumulate, a.gx_src,
        )  # fmt: skip
    else:
        sources = a.graph._index("out_rows")
        gat.dot(sources, a.out_nodes, gat.gradients(), gat.by_head(a.x_src), dots)
        if a.gx_src is not None:
            terms = [(weights, gat.gradients())]
            gat.weighted_sums(rows, positions, terms, a.gx_src, accumulate)
    masked = None if a.gmask is None else gat.by_entry()
    by_sides = _by_sides(gat, weights, dots, masked)
    if a.gmask is not None and masked is not None:
        gat.sum(gat.edge_rows(), masked, a.gmask, a.accumulate)
    if by_sides:
        gat.to_features(a.attention, "g", by_sides, written)
        if a.gattention is not None:
            gat.to_block("", by_sides, a.gattention, written("gattention"))


def _by_sides(
    gat: _NodeAttention, weights: DeviceArray, dots: DeviceArray, masked: DeviceArray | None
) -> list[DeviceArray | None]:
    """Return the gradients by the scores of each side, from the products in CSR order.

    The list is empty if no gradient through the scores is requested.
    """
    a, by_source = gat.a, gat.by_entry()
    wanted = gat.wants("g")
    by_entry: DeviceArray | None
    by_dst: DeviceArray | None
    if gat.incoming.segments:
        by_entry, known = gat.by_entry(), Intermediates(positions=a.in_entries, dots=dots)
        gat.entry_step(SUMS, known, first=by_entry)
        known = replace(known, sums=gat.sum_incoming(by_entry))
        gat.entry_step(BACK, known, first=by_entry, second=by_source, masked=masked)
        by_dst = gat.sum_incoming(by_entry) if wanted else None
    else:
        by_dst, by_entry = gat.by_row(a.num_dst), gat.by_entry() if gat.has_edges else None
        gat.run(
            "scores_vjp", blocks(a.num_dst, WARP), a.num_dst, a.in_offsets, a.in_nodes, a.in_edges,
            a.in_entries, *gat.scores, weights, dots, by_dst, by_source, by_entry, masked,
        )  # fmt: skip
    if not wanted:
        return []
    by_edge = None
    if gat.has_edges and by_entry is not None:
        by_edge = gat.sum(gat.edge_rows(), by_entry)
    return [gat.sum(neighbours.outgoing(a.graph), by_source), by_dst, by_edge]


def double_backward(rt: Runtime, a: Gat) -> None:
    """Compute dgy and the second-order gradients by all inputs, as requested."""
    gat, written = _NodeAttention(rt, a), Written(a)
    gat.softmax()
    by_side = [rt.zeros((rows, gat.heads), gat.dtype) for rows, _ in gat.sides()]
    if gat.wants("h", SIDES):
        gat.project(a.attention, "h", True, by_side)
    if a.hattention is not None:
        gat.project(a.hattention, "", True, by_side)
    known = Intermediates(tangents=(*gat.with_edges(by_side), a.hmask))
    weights, tweights = gat.by_entry(), gat.by_entry()
    gat.entry_step(MEANS, known, first=weights)
    known = replace(known, mean=gat.sum_incoming(weights))
    gat.entry_step(WEIGHTS, known, first=weights, second=tweights)
    hx = None if a.hx_src is None else gat.by_head(a.hx_src)
    if a.dgy is not None:
        terms = [(tweights, gat.by_head(a.x_src))]
        gat.sum_sources([*terms, (weights, hx)] if hx else terms, a.dgy)
    if not gat.wants("d", (*BY_SCORES, "mask")):
        return
    if a.dx_src is not None:
        rows = neighbours.outgoing(a.graph, nodes=a.out_nodes)
        terms = [(tweights, gat.gradients())]
        gat.weighted_sums(rows, a.out_entries, terms, a.dx_src, written("dx_src"))
    dots, tdots = gat.by_entry(), gat.by_entry() if hx else None
    gat.dot(
        a.in_nodes, gat.owners(), gat.gradients(), gat.by_head(a.x_src), dots, other=hx,
        other_dots=tdots,
    )  # fmt: skip
    known = replace(known, dots=dots, tdots=tdots)
    both = gat.by_entry(2 * gat.heads)
    gat.entry_step(SUMS, known, first=both)
    known = replace(known, sums=gat.sum_incoming(both))
    masked = None if a.dmask is None else gat.by_entry()
    gat.entry_step(BACK, known, first=weights, second=tweights, masked=masked)
    if a.dmask is not None and masked is not None:
        gat.sum(gat.edge_rows(), masked, a.dmask, a.accumulate)
    if not gat.wants("d"):
        return
    by_tangents, by_scores = (
        [
            gat.sum(neighbours.outgoing(a.graph, edges=a.out_entries), by_entry),
            gat.sum_incoming(by_entry),
            gat.sum(gat.edge_rows(), by_entry) if gat.has_edges else None,
        ]
        for by_entry in (tweights, weights)
    )
    gat.to_features(a.attention, "d", by_tangents, written)
    if a.hattention is not None:
        gat.to_features(a.hattention, "d", by_scores, written)
    if a.dattention is not None:
        gat.to_block("", by_tangents, a.dattention, written("dattention"))
        if gat.wants("h", SIDES):
            gat.to_block("h", by_scores, a.dattention, True)
