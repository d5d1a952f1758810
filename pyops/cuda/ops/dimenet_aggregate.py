"""Edge-to-edge aggregation of DimeNet++ on a device, by pairs of edges found in the graph rows.

Sums over pairs give the gradients by X, by T_f,l = A_l R_f,l and by B of Q_f,l = X_f * B T_f,l;
gradients through T are matrix products.
"""

from __future__ import annotations

from typing import Any

from .._runtime import Runtime
from .._terms import put
from .._triplets import Triplets, plus
from .._written import Written

NAMES = "vectors", "radial", "embedding", "weights"


def forward(rt: Runtime, a: Any) -> None:
    self = Triplets(rt, a)
    y = self.empty(a.num_entries, a.channels)
    self.into(False, None, y, None)
    self.to_edges(y, a.y, a.accumulate)


def _back_through_a(self: Triplets, prefix: str, wanted: int, second: bool, by_entry: Any) -> None:
    """Propagate gradients by T, with a flag for edges in pairs, to R and to A."""
    a, none = self.a, self.dtype.type(0)
    table = self.empty(a.num_edges, by_entry.shape[2])
    self.to_edges(by_entry, table, False)
    met = table[:, -1:] > 0  # the others get 0, also where R or A is NaN

    def part(number: int) -> Any:
        size = a.num_spherical * a.middle
        columns = table[:, number * size : (number + 1) * size]
        return columns.reshape(-1, a.num_spherical, a.middle).transpose(1, 0, 2)

    terms: list[tuple[Any, Any, Any]] = [(part(0), a.radial, self.weights)]
    if second:
        moves = self.tu is not None or self.tx is not None or self.tweights is not None
        terms = terms if moves else []
        if self.tt is not None:
            terms.append((part(1), self.tr, self.tweights))
    if wanted & 2:
        total = plus(
            *(self.multiply(g, w.a.transpose(0, 2, 1)) for g, _, w in terms if w is not None)
        )
        if total is not None:
            total = self.xp.where(met[..., None], total.transpose(1, 0, 2), none)
        out = self.by_degree(getattr(a, prefix + "radial"))
        put(out, [] if total is None else [total], a.accumulate)
    if wanted & 8:
        there = (
            (g, self.by_degree(self.xp.where(met, r, none))) for g, r, _ in terms if r is not None
        )
        total = plus(*(self.multiply(r.transpose(1, 2, 0), g) for g, r in there))
        out = getattr(a, prefix + "weights")[: a.num_spherical * a.num_radial]
        put(out, [total.reshape(out.shape)], a.accumulate)


def _pull(self: Triplets, prefix: str, wanted: int, second: bool, y: Any) -> None:
    """Compute the gradients of either order; and y of entries in the same pass if requested."""
    a = self.a
    ends: list[Any] = [None, None] if second else [None]
    if wanted & 1:
        ends = [self.empty(a.num_entries, self.parts, 3) for _ in ends]
    if wanted & 1 or y is not None:
        self.into(second, a.gy, y, *ends)
    if not wanted & 15:
        return
    by_x = by_t = by_b = None
    each = self.each if wanted & 8 else 1
    if wanted & 4:
        by_x = self.empty(a.num_entries, a.channels)
    if wanted & 10:
        width = (1 if self.tt is None else 2) * a.num_spherical * a.middle + 1
        by_t = self.empty(a.num_entries, self.parts, width)
    if wanted & 8:
        by_b = self.empty(-(-a.num_entries // each), a.middle * a.channels)
    self.back(second, each, by_x, by_t, by_b, *ends)
    if wanted & 1:
        self.by_vectors(ends, getattr(a, prefix + "vectors"), a.accumulate)
    if wanted & 4:
        self.to_edges(by_x, getattr(a, prefix + "embedding"), a.accumulate)
    if wanted & 10:
        _back_through_a(self, prefix, wanted, second, by_t)
    if wanted & 8:
        out = getattr(a, prefix + "weights")[a.num_spherical * a.num_radial :]
        put(out, [self.sum_rows(by_b).reshape(a.middle, a.channels).T], a.accumulate)


def backward(rt: Runtime, a: Any) -> None:
    _pull(Triplets(rt, a), "g", a.wanted, False, None)


def double_backward(rt: Runtime, a: Any) -> None:
    if not a.given:
        Written(a).finish(*("d" + name for name in NAMES), "dgy")
        return
    self = Triplets(rt, a, a.given)
    y = self.empty(a.num_entries, a.channels) if a.wanted & 16 else None
    _pull(self, "d", a.wanted, True, y)
    if y is not None:
        self.to_edges(y, a.dgy, a.accumulate)
