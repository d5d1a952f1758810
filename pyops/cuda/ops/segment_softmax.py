"""Softmax over the incoming entries of each destination, by column, on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .._arguments import Written
from .._heads import ALPHA, BACK, MEANS, SUMS, WEIGHTS, Intermediates, Softmax

if TYPE_CHECKING:
    from .._array import DeviceArray
    from .._declared import SegmentSoftmax
    from .._runtime import Runtime

IDENTITY = 2


class _Segments(Softmax):
    """Softmax whose scores are the logits of the edges."""

    def __init__(self, rt: Runtime, a: SegmentSoftmax) -> None:
        super().__init__(rt, a.graph, a.logits.dtype, a.heads, 1)
        self.order = a.in_order
        self.scores = a.heads, IDENTITY, 0.0, None, None, a.logits, None
        self.softmax()

    def store(self, by_entry: DeviceArray, y: DeviceArray, accumulate: bool) -> None:
        """Scatter from CSC order to the order of the graph."""
        order = self.order - 1
        y[order] = y[order] + by_entry if accumulate else by_entry


def forward(rt: Runtime, a: SegmentSoftmax) -> None:
    """Compute y."""
    segments = _Segments(rt, a)
    alpha = segments.by_entry()
    segments.entry_step(ALPHA, first=alpha)
    segments.store(alpha, a.y, a.accumulate)


def backward(rt: Runtime, a: SegmentSoftmax) -> None:
    """Compute glogits if requested."""
    if a.glogits is None:
        return
    segments, known = _Segments(rt, a), Intermediates(positions=a.in_order, dots=a.gy)
    terms = segments.by_entry()
    segments.entry_step(SUMS, known, first=terms)
    known = replace(known, sums=segments.sum_incoming(terms))
    segments.entry_step(BACK, known, first=terms)
    segments.sum(segments.edge_rows(), terms, a.glogits, a.accumulate)


def double_backward(rt: Runtime, a: SegmentSoftmax) -> None:
    """Compute dlogits and dgy, as requested."""
    written = Written(a)
    if a.hlogits is not None:
        segments = _Segments(rt, a)
        terms, second = segments.by_entry(), segments.by_entry()
        known = Intermediates(tangents=(None, None, a.hlogits, None))
        segments.entry_step(MEANS, known, first=terms)
        known = replace(known, mean=segments.sum_incoming(terms))
        if a.dgy is not None:
            segments.entry_step(WEIGHTS, known, first=terms, second=second)
            segments.store(second, a.dgy, written("dgy"))
        if a.dlogits is not None:
            known = replace(known, positions=a.in_order, dots=a.gy)
            both = segments.by_entry(2 * a.heads)
            segments.entry_step(SUMS, known, first=both)
            known = replace(known, sums=segments.sum_incoming(both))
            segments.entry_step(BACK, known, first=terms, second=second)
            segments.sum(segments.edge_rows(), second, a.dlogits, written("dlogits"))
    written.finish("dlogits", "dgy")
