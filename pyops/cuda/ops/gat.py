"""Graph attention on a device.

Forward gathers the neighbour features once. Backward gathers the gradients of the destinations
once more, by their sources. The weights, [entries, heads], are kept for the duration of a call.
"""

from __future__ import annotations

from typing import Any

from .. import _neighbours as neighbours
from .._heads import ALPHA, BACK, MEANS, SUMS, WARP, WEIGHTS, Attention
from .._neighbours import THREADS, blocks
from .._runtime import Runtime
from .._written import Written

SIDES = (("x_src", 0), ("x_dst", 1), ("edge_features", 3))
NOTHING = 0, 0, None, None, None


class _Gat(Attention):
    """Shared state of the phases: sizes, scores, softmax."""

    def __init__(self, rt: Runtime, a: Any, weigh: bool = False) -> None:
        super().__init__(rt, a, a.attention.dtype)
        self.weights = self.numbers_of(a.num_entries) if weigh else None
        self.numbers = [self.numbers_of(rows) for rows, _ in self.sides()]
        self.project(a.attention, "", False, self.numbers)
        self.scores = (
            a.heads, a.activation, float(a.negative_slope), *self.edges_or_none(self.numbers),
            self.mask,
        )  # fmt: skip
        self.soften(self.weights)

    def blocks_of(self, attention: Any) -> tuple[Any, Any, Any]:
        """Return a_src, a_dst, a_edge."""
        flat, size = attention.reshape(-1), self.heads * self.width
        return flat[:size], flat[size : 2 * size], flat[2 * size :]

    def sides(self) -> list[tuple[int, int]]:
        """Return rows and width of each side."""
        a = self.a
        edges = a.num_edges if self.has_edges else 0
        return [(a.num_src, a.width), (a.num_dst, a.width), (edges, a.edge_width)]

    def edges_or_none(self, numbers: list[Any]) -> list[Any]:
        return [*numbers[:2], numbers[2] if self.has_edges else None]

    def project(self, attention: Any, prefix: str, accumulate: bool, into: list[Any]) -> None:
        """Compute the products of the features, or of given tangents, with an attention block."""
        args, units = [], 0
        for (name, bit), (rows, width), weights, out in zip(
            SIDES, self.sides(), self.blocks_of(attention), into, strict=True
        ):
            if rows and (not prefix or self.a.given >> bit & 1):
                args += [rows, width, getattr(self.a, prefix + name), weights, out]
                units += rows * self.heads
            else:
                args += NOTHING
        self.run("project", blocks(units, 8), self.heads, 7 * accumulate, *args)


def forward(rt: Runtime, a: Any) -> None:
    self = _Gat(rt, a, weigh=True)
    along = [(self.weights, self.own(a.x_src))]

    def gather(accumulate: bool, out: Any) -> None:
        self.weigh(self.into, None, along, out, accumulate)

    self.through_average(gather, a.accumulate, a.y)


def attention(rt: Runtime, a: Any) -> None:
    self = _Gat(rt, a)
    self.alone(ALPHA, self.owners(), first=a.alpha)


def _to_inputs(
    self: _Gat, prefix: str, attention: Any, values: str, by_sides: list[Any], wanted: int,
    block: bool, written: Written,
) -> None:  # fmt: skip
    """Propagate gradients by the node and edge scores to features and to the attention block."""
    a, units, adds = self.a, 0, 0
    args: list[Any] = []
    weights = self.blocks_of(attention)
    for side, ((name, bit), (rows, width), some, by) in enumerate(
        zip(SIDES, self.sides(), weights, by_sides, strict=True)
    ):
        if rows and wanted >> bit & 1:
            args += [rows, width, getattr(a, prefix + name), some, by]
            adds += written(prefix + name) << side
            units += rows * self.heads
        else:
            args += NOTHING
    self.run("spread", blocks(units, 8), self.heads, adds, *args)
    if not block:
        return
    given = getattr(a, "given", 0)
    each = max(64, -(-max(a.num_src, a.num_dst) // 128))
    rows_each, joined, total = [], [], 0
    for (name, bit), (rows, width), by in zip(SIDES, self.sides(), by_sides, strict=True):
        count, size = 0, self.heads * width
        if rows and width and (not values or given >> bit & 1):
            count = -(-rows // each)
            rows_each += [rows, width, getattr(a, values + name), None, by]
        else:
            rows_each += NOTHING
        joined += [count, size]
        total += count
    partial = self.rt.empty(
        sum(n * size for n, size in zip(joined[::2], joined[1::2], strict=True)), "float64"
    )
    columns = -(-self.heads * max(a.width, a.edge_width) // WARP)
    self.run(
        "sum_blocks", (total, columns), self.heads, each, *rows_each, partial, shared=8 * THREADS
    )
    add, out = written(prefix + "attention"), getattr(a, prefix + "attention")
    self.run("join_blocks", blocks(sum(joined[1::2]), WARP), *joined, partial, add, out)


def backward(rt: Runtime, a: Any) -> None:
    self, written, wanted = _Gat(rt, a, weigh=True), Written(a), a.wanted
    out = neighbours.out_of(a, nodes=a.out_nodes)
    places, dots = a.graph._index("out_entries"), self.numbers_of(a.num_entries)
    gx = a.gx_src if wanted & 1 else None
    adds = written("gx_src")
    if self.parts == 1:
        self.gather(
            "attend_back", out, 1, places, self.heads, self.weights,
            *self.gradients().arguments, a.x_src, dots, self.partial(out), adds, gx,
        )  # fmt: skip
    else:
        sources = a.graph._index("out_rows")
        self.multiply(sources, a.out_nodes, self.gradients(), self.own(a.x_src), dots)
        if gx is not None:
            back = [(self.weights, self.gradients())]
            self.weigh(out, places, back, gx, adds)
    masked = self.numbers_of(a.num_entries) if wanted & 16 else None
    by_sides = _by_sides(self, dots, masked, bool(wanted & 15))
    if wanted & 16:
        self.sum(self.by_edges(), masked, a.gmask, a.accumulate)
    if wanted & 15:
        _to_inputs(self, "g", a.attention, "", by_sides, wanted, bool(wanted & 4), written)


def _by_sides(self: _Gat, dots: Any, masked: Any, by_scores: bool) -> list[Any]:
    """Return the gradients by the scores of each side, from the products in CSR order."""
    a, by_source = self.a, self.numbers_of(self.a.num_entries)
    by_entry = None
    if self.into.pieces:
        owners, terms = self.owners(), self.numbers_of(a.num_entries)
        self.alone(SUMS, owners, places=a.in_entries, dots=dots, first=terms)
        sums = self.sum_into(terms)
        self.alone(BACK, owners, places=a.in_entries, dots=dots, sums=sums, first=terms,
            second=by_source, masked=masked,
        )  # fmt: skip
        by_dst, by_entry = self.sum_into(terms) if by_scores else None, terms
    else:
        by_dst = self.numbers_of(a.num_dst)
        by_entry = self.numbers_of(a.num_entries) if self.has_edges else None
        self.run(
            "pull_rows", blocks(a.num_dst, WARP), a.num_dst, a.in_offsets, a.in_nodes, a.in_edges,
            a.in_entries, *self.scores, self.weights, dots, by_dst, by_source, by_entry, masked,
        )  # fmt: skip
    if not by_scores:
        return []
    by_edge = self.sum(self.by_edges(), by_entry) if self.has_edges else None
    return [self.sum(neighbours.out_of(a), by_source), by_dst, by_edge]


def double_backward(rt: Runtime, a: Any) -> None:
    self, written, wanted = _Gat(rt, a), Written(a), a.wanted
    owners, entries = self.owners(), a.num_entries
    numbers = [rt.zeros((rows, self.heads), self.dtype) for rows, _ in self.sides()]
    if a.given & 11:
        self.project(a.attention, "h", True, numbers)
    if a.given & 4:
        self.project(a.hattention, "", True, numbers)
    tangents = *self.edges_or_none(numbers), a.hmask if a.given & 16 else None
    terms = self.numbers_of(entries)
    self.alone(MEANS, owners, tangents=tangents, first=terms)
    known: dict[str, Any] = {"tangents": tangents, "mean": self.sum_into(terms)}
    weights, tweights = terms, self.numbers_of(entries)
    self.alone(WEIGHTS, owners, **known, first=weights, second=tweights)
    hx = a.hx_src if a.given & 1 else None
    if wanted & 32:
        along = [(tweights, self.own(a.x_src))]
        if hx is not None:
            along.append((weights, self.own(hx)))

        def gather(accumulate: bool, out: Any) -> None:
            self.weigh(self.into, None, along, out, accumulate)

        self.through_average(gather, a.accumulate, a.dgy)
    if not wanted & 31:
        return
    if wanted & 1:
        out = neighbours.out_of(a, nodes=a.out_nodes)
        back = [(tweights, self.gradients())]
        self.weigh(out, a.out_entries, back, a.dx_src, written("dx_src"))
    dots = self.numbers_of(entries)
    tdots = None if hx is None else self.numbers_of(entries)
    self.multiply(
        a.in_nodes, owners, self.gradients(), self.own(a.x_src), dots,
        other=None if hx is None else self.own(hx), other_dots=tdots,
    )  # fmt: skip
    known |= {"dots": dots, "tdots": tdots}
    both = self.numbers_of(entries, 2 * self.heads)
    self.alone(SUMS, owners, **known, first=both)
    known["sums"] = self.sum_into(both)
    masked = self.numbers_of(entries) if wanted & 16 else None
    self.alone(BACK, owners, **known, first=terms, second=tweights, masked=masked)
    if wanted & 16:
        self.sum(self.by_edges(), masked, a.dmask, a.accumulate)
    if not wanted & 15:
        return
    by_tangents, by_scores = (
        [
            self.sum(neighbours.out_of(a, edges=a.out_entries), some),
            self.sum_into(some),
            self.sum(self.by_edges(), some) if self.has_edges else None,
        ]
        for some in (tweights, terms)
    )
    _to_inputs(self, "d", a.attention, "", by_tangents, wanted, bool(wanted & 4), written)
    if a.given & 4 or (wanted & 4 and a.given & 11):
        to_features = wanted & 11 if a.given & 4 else 0
        attention = a.hattention if a.given & 4 else a.attention
        to_block = bool(wanted & 4 and a.given & 11)
        _to_inputs(self, "d", attention, "h", by_scores, to_features, to_block, written)
