"""Edge-to-edge aggregation of DimeNet++ on a device: pairs of edges are met in the rows of a graph.

What depends on single edges are products of matrices. Of the gradients of Q_f,l = X_f * B T_f,l,
with T_f,l = A_l R_f,l, so many edges at a time are kept as `MOST` numbers hold.
"""

from __future__ import annotations

from typing import Any

from .._runtime import Runtime
from .._triplets import Triplets, plus
from .._written import Written

MOST = 2**23
NAMES = "vectors", "radial", "embedding", "weights"


def forward(rt: Runtime, a: Any) -> None:
    self = Triplets(rt, a)
    y = self.empty(a.num_entries, a.channels)
    self.into(False, None, y, None)
    self.to_edges(y, a.y, a.accumulate)


class _Sums:
    """Gradients by radial parts, embeddings and weights, chunk by chunk of entries."""

    def __init__(self, self_: Triplets, wanted: int) -> None:
        self.of, self.wanted = self_, wanted
        a = self_.a
        columns = a.num_spherical * a.num_radial
        self.radial: Any = self_.empty(a.num_entries, columns) if wanted & 2 else None
        self.embedding: Any = self_.empty(a.num_entries, a.channels) if wanted & 4 else None
        self.by_a: Any = None
        self.by_b: Any = None

    def product(self, x: Any, y: Any) -> Any:
        """x y over the last and the first axis, of which x has two before."""
        flat = self.of.multiply(x.reshape(-1, x.shape[-1]), y)
        return flat.reshape(*x.shape[:-1], y.shape[-1])

    def joined(self, x: Any, y: Any) -> Any:
        """The sum of the outer products of their last axes."""
        x, y = (z.reshape(-1, z.shape[-1]) for z in (x, y))
        return self.of.multiply(x.T, y)

    def add(self, start: int, end: int, gq: Any, tgq: Any, met: Any, second: bool) -> None:
        of, a = self.of, self.of.a
        ids = a.in_edges[start:end] - 1

        def if_met(rows: Any) -> Any:
            """Rows of entries; 0, whatever is there, where there is no pair."""
            there = met.reshape(-1, *(1,) * (rows.ndim - 1)) != 0
            return of.xp.where(there, rows, rows.dtype.type(0))

        def of_pairs(array: Any) -> Any:
            return None if array is None else if_met(array[ids])

        b, t, tt = of.weights.b, of_pairs(of.t), of_pairs(of.tt)
        x, tx = (None if z is None else z[:, None] for z in map(of_pairs, (a.embedding, of.tx)))
        tb = None if of.tweights is None else of.tweights.b
        if self.wanted & 4:
            k = self.product(t, b.T)
            terms = k * gq
            if second:
                tk = plus(
                    None if tt is None else self.product(tt, b.T),
                    None if tb is None else self.product(t, tb.T),
                )
                terms = plus(None if tk is None else tk * gq, None if tgq is None else k * tgq)
            self.embedding[start:end] = 0 if terms is None else if_met(terms.sum(1))
        if not self.wanted & 10:
            return
        gk = x * gq
        tgk = plus(None if tx is None else tx * gq, None if tgq is None else x * tgq)
        gt = self.product(gk, b)
        tgt = plus(
            None if tgk is None else self.product(tgk, b),
            None if tb is None else self.product(gk, tb),
        )
        # By T and by K, and what they meet: (gradient, factor) pairs whose products are summed.
        pairs_k: list[Any] = [(gk, t)]
        pairs_t: list[Any] = [(gt, of.weights)]
        factors: list[Any] = [(gt, of_pairs(a.radial))]
        if second:
            pairs_k, pairs_t = [(tgk, t), (gk, tt)], [(tgt, of.weights), (gt, of.tweights)]
            factors = [(tgt, of_pairs(a.radial)), (gt, of_pairs(of.tr))]
        if self.wanted & 2:
            by_radial = self._by_radial(pairs_t, end - start)
            self.radial[start:end] = 0 if by_radial is None else if_met(by_radial)
        if self.wanted & 8:
            self.by_b = plus(self.by_b, *(self.joined(g, s) for g, s in _there(pairs_k)))
            self.by_a = plus(self.by_a, *(self._by_a(g, r) for g, r in _there(factors)))

    def _by_radial(self, pairs: list[Any], count: int) -> Any:
        products = (
            self.of.multiply(g.transpose(1, 0, 2), w.a.transpose(0, 2, 1)) for g, w in _there(pairs)
        )
        total = plus(*products)
        return None if total is None else total.transpose(1, 0, 2).reshape(count, -1)

    def _by_a(self, g: Any, radial: Any) -> Any:
        r = self.of.by_degree(radial)
        return self.of.multiply(r.transpose(1, 2, 0), g.transpose(1, 0, 2))

    def store(self, prefix: str, accumulate: bool) -> None:
        """Bring all to the outputs."""
        a = self.of.a
        for bit, name, table in ((2, "radial", self.radial), (4, "embedding", self.embedding)):
            if self.wanted & bit:
                self.of.to_edges(table, getattr(a, prefix + name), accumulate)
        if self.wanted & 8:
            columns, out = a.num_spherical * a.num_radial, getattr(a, prefix + "weights")
            for part, by in ((slice(columns), self.by_a), (slice(columns, None), self.by_b)):
                if by is not None:
                    by = by.reshape(-1, a.middle)
                    out[part] = out[part] + by if accumulate else by
                elif not accumulate:
                    out[part] = 0


def _there(pairs: list[Any]) -> list[Any]:
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _pull(self: Triplets, prefix: str, wanted: int, second: bool, y: Any) -> None:
    """The gradients of either order; and y, of entries, at the same meeting of pairs if wanted."""
    a = self.a
    sets = 2 if second else 1
    ends = [[None, None]] * sets
    if wanted & 1:
        ends = [[self.empty(a.num_entries, self.parts, 3) for _ in range(2)] for _ in range(sets)]
    if wanted & 1 or y is not None:
        self.into(second, a.gy, y, *(end[0] for end in ends))
    if not wanted & 15:
        return
    sums = _Sums(self, wanted)
    for start, end in self.chunks(MOST):
        shape = end - start, a.num_spherical, a.channels
        gq = tgq = met = None
        if wanted & 14:
            gq, met = self.empty(*shape), self.rt.empty(end - start, "int32")
            tgq = self.empty(*shape) if second and self.tu is not None else None
        self.back(second, start, end, gq, ends[0][1], met, tgq, ends[-1][1] if second else None)
        if wanted & 14:
            sums.add(start, end, gq, tgq, met, second)
    sums.store(prefix, a.accumulate)
    if wanted & 1:
        self.by_vectors(ends, getattr(a, prefix + "vectors"), a.accumulate)


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
