"""Attention whose scores belong to the entries: they are no sums of numbers of both ends.

Scores and what follows from them are [entries, heads] along the incoming rows, as long as a call
lasts; what they weigh is gathered.
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
    """Weights of the values of the entries, and the gradients by these weights' scores."""

    by_entry = True
    values: Gathered
    """What is summed up,"""
    moved: Gathered | None = None
    """and its tangent."""
    tangents: tuple[Any, ...] | None = None
    """Those of the scores and of the mask, of second order."""
    weights: Any
    """Mask times alpha."""
    tweights: Any = None

    def __init__(self, rt: Runtime, a: Any, dtype: Any, second: bool) -> None:
        super().__init__(rt, a, dtype)
        self.second = second
        self.known: dict[str, Any] = {}

    def features(self, array: Any, of_edges: Any = None, scale: float = 1.0) -> list[Gathered]:
        """Features by heads, if there are any."""
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
        """The softmax of the scores."""
        self.scores = self.heads, IDENTITY, 0.0, None, None, scores, self.mask
        self.weights = self.numbers()
        self.soften(None if self.second else self.weights)
        if self.second:
            mask = self.a.hmask if self.a.given & 16 else None
            self.known["tangents"] = None, None, tangents, mask

    def store_alpha(self) -> None:
        self.step(ALPHA, first=self.a.alpha)

    def move_weights(self) -> None:
        """The weights again and their tangents."""
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
        """What a sum of weights times features is made of, or its tangent."""
        if not self.second:
            return [(weights, some) for some in of]
        return [(tweights, some) for some in of] + [(weights, some) for some in moved]

    def by_scores(self, gmask: Any) -> tuple[Any, Any]:
        """The gradients by the scores and their tangents; those by the mask where wanted."""
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
        """The entries of each source, and their places along the incoming rows."""
        rows = neighbours.out_of(self.a, nodes=self.a.out_nodes)
        return rows, self.a.graph._index("out_entries")

    def of_edges(self) -> tuple[Rows, Any]:
        """The entries of each edge, and their places."""
        nodes, _ = neighbours.along(self.a, self.owners())
        return neighbours.of_edges(self.a, nodes=nodes), self.a.id_entries


def phases(kind: Callable[..., Any], inputs: Sequence[str]) -> tuple[Callable[..., None], ...]:
    """forward, attention, backward and double_backward of a room, of what has the gradients by
    these inputs in its `pull`."""

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
