"""Kernels by heads on a device: softmax over the entries of rows, and gathers head by head.

Launches kernels/attend.cu and kernels/scores.cu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _neighbours as neighbours
from ._neighbours import THREADS, Columns, Rows, blocks
from ._runtime import Runtime

WARP, VECTOR, SLOTS = 32, 4, 2
WIDE = "attend_back", "gather", "multiply", "average"
"""Kernels that read features; the others read values by entry and head."""
ALPHA, MEANS, WEIGHTS, SUMS, BACK = range(1, 6)


@dataclass(frozen=True)
class Gathered:
    """Features by heads to gather at the other ends of entries, and a common factor."""

    array: Any
    stride: int
    by_head: int
    scale: float = 1.0
    of_edges: Any = None
    """Edge features to add, [edges, heads, width]; either of `array` and this may be None."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.array, self.stride, self.by_head, self.scale


Term = tuple[Any, Gathered]
"""Weights of entries, and the features that they weight."""


def _power(n: int) -> int:
    """Return the smallest power of two >= n."""
    return 1 << max(0, n - 1).bit_length()


class Heads:
    """Launches of kernels on arrays by entry and head, and on features of a width for each head."""

    def __init__(self, rt: Runtime, a: Any, dtype: Any, heads: int, width: int) -> None:
        self.rt, self.a, self.dtype = rt, a, dtype
        self.heads, self.width = heads, width
        self.lanes = min(WARP, _power(-(-width // VECTOR)))
        self.across = min(WARP // self.lanes, _power(-(-heads // SLOTS)))
        self.parts = -(-width // (self.lanes * VECTOR))
        self.into = neighbours.into(a, nodes=a.in_nodes)

    def run(self, kernel: str, grid: Any, *args: Any, shared: int = 0) -> None:
        source = "attend" if kernel in WIDE else "scores"
        self.rt.launch(source, kernel, self.dtype, grid, THREADS, args, shared)

    def numbers_of(self, count: int, heads: int | None = None) -> Any:
        return self.rt.empty((count, self.heads if heads is None else heads), self.dtype)

    def chunks(self, parts: int) -> int:
        """Return the number of warps per row, for these heads and parts of a head."""
        return -(-self.heads // (SLOTS * self.across)) * parts

    def gather(self, kernel: str, rows: Rows, parts: int, *args: Any) -> None:
        """Launch a kernel for the segments of long rows, then for the rows."""
        chunks = self.chunks(parts)
        for pieces, units in ((1, rows.pieces), (0, rows.count)):
            self.run(
                kernel, (blocks(units, WARP), chunks), pieces, rows.count, rows.entries,
                rows.offsets, rows.nodes, self.lanes, self.across, parts, self.width, *args,
            )  # fmt: skip

    def weigh(
        self, rows: Rows, places: Any, terms: Sequence[Term], out: Any, accumulate: bool
    ) -> None:
        """out (+)= the sums over the rows of features times weights, 0 without terms.

        Weights are in the order of the rows, or at `places`, 1-based.
        """
        if not terms and not accumulate:
            out[...] = 0
        for first in range(0, len(terms), 2):
            some = [
                [weights, *of.arguments, of.of_edges] for weights, of in terms[first : first + 2]
            ]
            some += [[None, None, 0, 0, 0.0, None]] * (2 - len(some))
            self.gather(
                "gather", rows, self.parts, places, self.heads, rows.edges, *some[0], *some[1],
                self.partial(rows), accumulate or first > 0, out,
            )  # fmt: skip

    def partial(self, rows: Rows) -> Any:
        return self.numbers_of(rows.pieces, self.heads * self.width)

    def own(self, array: Any) -> Gathered:
        return Gathered(array, self.heads * self.width, self.width)

    def owners(self) -> Any:
        return neighbours.owners(self.a)

    def sum(self, rows: Rows, table: Any, out: Any = None, accumulate: bool = False) -> Any:
        """Return the sums over rows of a table of entries."""
        width = table.shape[1]
        if out is None:
            out = self.numbers_of(rows.count, width)
        place = Columns(out, width, 0)
        neighbours.add(self.rt, rows, Columns(table, width, 0), width, place, accumulate)
        return out

    def sum_into(self, table: Any) -> Any:
        return self.sum(neighbours.into(self.a), table)

    def by_edges(self) -> Rows:
        return neighbours.of_edges(self.a, edges=self.a.id_entries)

    def multiply(
        self, sources: Any, destinations: Any, of: Gathered, x: Gathered, dots: Any, *,
        tangent: Any = None, other: Gathered | None = None, other_dots: Any = None,
    ) -> None:  # fmt: skip
        """Store the products of features of destinations and of sources, and their derivatives.

        Tangents of either have the layout of the features.
        """
        a, moved = self.a, other or Gathered(None, 0, 0)
        by_edges = x.of_edges is not None or moved.of_edges is not None
        self.run(
            "multiply", blocks(a.num_entries * self.heads, 8), a.num_entries, self.heads,
            self.width, sources, destinations, a.in_edges if by_edges else None, *of.arguments,
            tangent, x.array, x.stride, x.by_head, x.of_edges, moved.array, moved.of_edges, dots,
            other_dots,
        )  # fmt: skip


class Softmax(Heads):
    """Softmax of scores over the incoming entries of each destination."""

    scores: tuple[Any, ...]
    """Heads, activation, slope; scores of sources, destinations and edges; factors of edges; the
    largest score of each destination and one over its sum of exponentials."""
    by_entry = False
    """Whether the edge scores are stored by entry instead of by edge."""

    def soften(self, weights: Any = None) -> None:
        """Compute the largest scores and sums; `weights`, if given, gets factor times alpha."""
        a, cut = self.a, self.into.pieces
        top, share = self.numbers_of(a.num_dst), self.numbers_of(a.num_dst)
        partial = self.numbers_of(cut, 2 * self.heads)
        for pieces, units in ((1, cut), (0, a.num_dst)):
            self.run(
                "soften", blocks(units, WARP), pieces, a.num_dst, a.num_entries, a.in_offsets,
                a.in_nodes, a.in_edges, self.by_entry, *self.scores, None, None, partial, top,
                share, None if cut else weights,
            )  # fmt: skip
        self.scores = *self.scores, top, share
        if cut and weights is not None:
            self.alone(WEIGHTS, self.owners(), first=weights)

    def alone(
        self,
        step: int,
        owners: Any,
        *,
        places: Any = None,
        tangents: Any = None,
        mean: Any = None,
        dots: Any = None,
        tdots: Any = None,
        sums: Any = None,
        first: Any = None,
        second: Any = None,
        masked: Any = None,
    ) -> None:
        """Launch a step of `entries_alone`."""
        a = self.a
        self.run(
            "entries_alone", blocks(a.num_entries * self.heads, 1), step, tangents is not None,
            self.by_entry, a.num_entries, a.in_nodes, a.in_edges, owners, places, *self.scores,
            *(tangents or (None,) * 4), mean, dots, tdots, sums, first, second, masked,
        )  # fmt: skip


class Attention(Softmax):
    """Shared parts of the attention operators: mask, heads side by side or averaged."""

    def __init__(self, rt: Runtime, a: Any, dtype: Any) -> None:
        super().__init__(rt, a, dtype, a.heads, a.width)
        self.has_edges = bool(a.present >> 3 & 1)
        self.mask = a.mask if a.present >> 4 & 1 else None

    def gradients(self) -> Gathered:
        """Return gy by heads."""
        by_head, scale = (self.width, 1.0) if self.a.concat else (0, 1 / self.heads)
        return Gathered(self.a.gy, self.a.out_width, by_head, scale)

    def through_average(
        self, compute: Callable[[bool, Any], None], accumulate: bool, out: Any
    ) -> None:
        """Store the result that `compute` returns by heads, side by side or averaged."""
        if self.a.concat:
            compute(accumulate, out)
            return
        by_head = self.numbers_of(self.a.num_dst, self.heads * self.width)
        compute(False, by_head)
        size = self.a.num_dst * self.width
        args = self.a.num_dst, self.heads, self.width, by_head, accumulate, out
        self.run("average", blocks(size, 1), *args)
