"""Attention with per-entry scores: these are not sums of node scores of both ends.

Scores and their derivatives are [entries, heads] in CSC order, kept for the duration of a call;
the weighted features are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _neighbours as neighbours
from ._heads import ALPHA, BACK, MEANS, SUMS, WEIGHTS, Attention, Gathered, Term
from ._neighbours import Rows
from ._runtime import Runtime

IDENTITY = 2


class EntryAttention(Attention):
    """Weighted sums of values over entries, and the gradients by the scores of the weights."""

    by_entry = True
    values: Gathered
    """Values that are summed."""
    moved: Gathered | None = None
    """Their tangent."""
    tangents: tuple[Any, ...] | None = None
    """Tangents of the scores and of the mask, for second order."""
    weights: Any
    """Mask times alpha."""
    tweights: Any = None

    def __init__(self, rt: Runtime, a: Any, dtype: Any, second: bool) -> None:
        super().__init__(rt, a, dtype)
        self.second = second
        self.known: dict[str, Any] = {}

    def features(self, array: Any, of_edges: Any = None, scale: float = 1.0) -> list[Gathered]:
        """Return features by heads as a list of one, empty if there are none."""
        if array is None and of_edges is None:
            return []
        return [Gathered(array, self.heads * self.width, self.width, scale, of_edges)]

    def tangent(self, name: str) -> Any:
        return getattr(self.a, f"h{name}", None) if self.second else None

    def numbers(self) -> Any:
        return self.numbers_of(self.a.num_entries)

    def step(self, step: int, **arrays: Any) -> None:
        self.alone(step, self.owners(), **self.known, **arrays)

    def soften_by(self, scores: Any, tangents: Any) -> None:
        """Compute the softmax of the scores."""
        self.scores = self.heads, IDENTITY, 0.0, None, None, scores, self.mask
        self.weights = self.numbers()
        self.soften(None if self.second else self.weights)
        if self.second:
            mask = self.a.hmask if self.a.given & 16 else None
            self.known["tangents"] = None, None, tangents, mask

    def store_alpha(self) -> None:
        self.step(ALPHA, first=self.a.alpha)

    def move_weights(self) -> None:
        """Recompute the weights, and compute their tangents."""
        self.tweights = self.numbers()
        self.step(MEANS, first=self.weights)
        self.known["mean"] = self.sum_into(self.weights)
        self.step(WEIGHTS, first=self.weights, second=self.tweights)

    def sum_values(self, out: Any) -> None:
        """out (+)= the weighted sums of the values, or their tangents."""
        terms = self.terms(self.weights, self.tweights, [self.values], self.listed(self.moved))

        def compute(accumulate: bool, into: Any) -> None:
            self.weigh(self.inward(), None, terms, into, accumulate)

        self.through_average(compute, self.a.accumulate, out)

    def listed(self, of: Gathered | None) -> list[Gathered]:
        return [] if of is None else [of]

    def terms(
        self, weights: Any, tweights: Any, of: list[Gathered], moved: list[Gathered]
    ) -> list[Term]:
        """Return the terms of a sum of weights times features, or of its tangent."""
        if not self.second:
            return [(weights, some) for some in of]
        return [(tweights, some) for some in of] + [(weights, some) for some in moved]

    def by_scores(self, gmask: Any) -> tuple[Any, Any]:
        """Return the gradients by the scores and their tangents; store those by the mask."""
        dots, tdots = self.numbers(), None
        if self.moved is not None:
            tdots = self.numbers()
        self.multiply(
            self.a.in_nodes, self.owners(), self.gradients(), self.values, dots, other=self.moved,
            other_dots=tdots,
        )  # fmt: skip
        self.known |= {"dots": dots, "tdots": tdots}
        both = self.numbers_of(self.a.num_entries, (1 + self.second) * self.heads)
        self.step(SUMS, first=both)
        self.known["sums"] = self.sum_into(both)
        first, second = dots, self.numbers() if self.second else None
        masked = None if gmask is None else self.numbers()
        self.step(BACK, first=first, second=second, masked=masked)
        if gmask is not None:
            self.sum(self.by_edges(), masked, gmask, self.a.accumulate)
        return first, second

    def inward(self) -> Rows:
        return neighbours.into(self.a, nodes=self.a.in_nodes, edges=self.a.in_edges)

    def outward(self) -> tuple[Rows, Any]:
        """Return the entries of each source, and their positions in CSC order."""
        rows = neighbours.out_of(self.a, nodes=self.a.out_nodes)
        return rows, self.a.graph._index("out_entries")

    def of_edges(self) -> tuple[Rows, Any]:
        """Return the entries of each edge, and their positions in CSC order."""
        nodes, _ = neighbours.along(self.a, self.owners())
        return neighbours.of_edges(self.a, nodes=nodes), self.a.id_entries


def phases(kind: Callable[..., Any], inputs: Sequence[str]) -> tuple[Callable[..., None], ...]:
    """Return forward, attention, backward and double_backward of an operator whose `pull` computes
    the gradients by these inputs."""

    def gradients(a: Any, prefix: str) -> list[Any]:
        return [getattr(a, prefix + name) for name in inputs]

    def forward(rt: Runtime, a: Any) -> None:
        kind(rt, a).sum_values(a.y)

    def attention(rt: Runtime, a: Any) -> None:
        kind(rt, a).store_alpha()

    def backward(rt: Runtime, a: Any) -> None:
        if a.wanted:
            kind(rt, a).pull(*gradients(a, "g"))

    def double_backward(rt: Runtime, a: Any) -> None:
        if not a.wanted:
            return
        self = kind(rt, a, second=True)
        self.move_weights()
        if a.wanted & 32:
            self.sum_values(a.dgy)
        if a.wanted & 31:
            self.pull(*gradients(a, "d"))

    return forward, attention, backward, double_backward
