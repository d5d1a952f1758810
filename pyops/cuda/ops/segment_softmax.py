"""Softmax over the incoming entries of each destination, by column, on a device."""

from __future__ import annotations

from typing import Any

from .._heads import ALPHA, BACK, MEANS, SUMS, WEIGHTS, Softmax
from .._runtime import Runtime
from .._written import Written

IDENTITY = 2


class _Segments(Softmax):
    """Softmax whose scores are the logits of the edges."""

    def __init__(self, rt: Runtime, a: Any) -> None:
        super().__init__(rt, a, a.logits.dtype, a.heads, 1)
        self.scores = a.heads, IDENTITY, 0.0, None, None, a.logits, None
        self.soften()

    def store(self, along_rows: Any, y: Any, accumulate: bool) -> None:
        """Scatter from CSC order to the order of the graph."""
        order = self.a.in_order - 1
        y[order] = y[order] + along_rows if accumulate else along_rows


def forward(rt: Runtime, a: Any) -> None:
    self = _Segments(rt, a)
    alpha = self.numbers_of(a.num_entries)
    self.alone(ALPHA, self.owners(), first=alpha)
    self.store(alpha, a.y, a.accumulate)


def backward(rt: Runtime, a: Any) -> None:
    if not a.wanted:
        return
    self, terms = _Segments(rt, a), rt.empty((a.num_entries, a.heads), a.logits.dtype)
    given: dict[str, Any] = {"places": a.in_order, "dots": a.gy}
    self.alone(SUMS, self.owners(), first=terms, **given)
    self.alone(BACK, self.owners(), first=terms, sums=self.sum_into(terms), **given)
    self.sum(self.by_edges(), terms, a.glogits, a.accumulate)


def double_backward(rt: Runtime, a: Any) -> None:
    written = Written(a)
    if a.given:
        self, owners = _Segments(rt, a), a.graph._index("in_rows")
        terms, second = self.numbers_of(a.num_entries), self.numbers_of(a.num_entries)
        known: dict[str, Any] = {"tangents": (None, None, a.hlogits, None)}
        self.alone(MEANS, owners, first=terms, **known)
        known["mean"] = self.sum_into(terms)
        if a.wanted & 2:
            self.alone(WEIGHTS, owners, first=terms, second=second, **known)
            self.store(second, a.dgy, written("dgy"))
        if a.wanted & 1:
            known |= {"places": a.in_order, "dots": a.gy}
            both = self.numbers_of(a.num_entries, 2 * a.heads)
            self.alone(SUMS, owners, first=both, **known)
            sums = self.sum_into(both)
            self.alone(BACK, owners, first=terms, second=second, sums=sums, **known)
            self.sum(self.by_edges(), second, a.dlogits, written("dlogits"))
    written.finish("dlogits", "dgy")
