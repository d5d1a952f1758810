"""Edge-to-edge aggregation of DimeNet++ on a device: pairs of edges are met in the rows of a graph.

What depends on single edges are products of matrices. Of the gradients of Q_f,l = X_f * B T_f,l,
with T_f,l = A_l R_f,l, so many edges at a time are kept as `MOST` numbers hold.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import _neighbours as neighbours
from .._neighbours import Columns, blocks
from .._runtime import Runtime
from .._written import Written

WARP, CHUNK, NODE_THREADS = 32, 8, 128
MOST = 2**23
NAMES = "vectors", "radial", "embedding", "weights"


class _Weights:
    """A and B of a block [A; B], or of its tangent."""

    def __init__(self, a: Any, block: Any) -> None:
        degrees, radial = a.num_spherical, a.num_radial
        self.a = block[: degrees * radial].reshape(degrees, radial, a.middle)
        self.b = block[degrees * radial :]


class _Triplets:
    """What the phases share: sizes, directions, T; and tangents, None where there are none."""

    def __init__(self, rt: Runtime, a: Any, given: int = 0) -> None:
        self.rt, self.a, self.xp = rt, a, rt.xp
        self.dtype = a.vectors.dtype
        self.degrees = next(n for n in (4, 8, 16, 32) if a.num_spherical <= n)
        self.line = WARP if self.degrees > 8 else 2 * WARP
        self.owners = neighbours.owners(a)
        self.weights = _Weights(a, a.weights)
        self.tweights = _Weights(a, a.hweights) if given & 8 else None
        self.tx = a.hembedding if given & 4 else None
        self.tr = a.hradial if given & 2 else None
        self.u, self.tu = self._directions(a.hvectors if given & 1 else None)
        self.t = self._through_a(a.radial, self.weights)
        self.tt = _plus(
            None if self.tr is None else self._through_a(self.tr, self.weights),
            None if self.tweights is None else self._through_a(a.radial, self.tweights),
        )
        self.graph = (
            a.num_entries, a.num_dst, a.in_offsets, a.in_nodes, a.in_edges, self.owners, a.exclude,
            a.reverse if a.exclude == 3 else None, self.u, self.tu,
        )  # fmt: skip

    def empty(self, *shape: int) -> Any:
        return self.rt.empty(shape, self.dtype)

    def run(self, kernel: str, grid: Any, *args: Any, shared: int = 0, threads: int = 256) -> None:
        self.rt.launch(
            "dimenet", kernel, self.dtype, grid, threads, args, shared, DEGREES=self.degrees
        )

    def _directions(self, tangents: Any) -> tuple[Any, Any]:
        edges = self.a.num_edges
        u = self.empty(edges, 4)
        tu = None if tangents is None else self.empty(edges, 4)
        self.run("directions", blocks(edges, 1), edges, self.a.vectors, tangents, u, tu)
        return u, tu

    def by_degree(self, radial: Any) -> Any:
        """Radial parts as [edge, degree, n]."""
        return radial.reshape(len(radial), self.a.num_spherical, self.a.num_radial)

    def _through_a(self, radial: Any, weights: _Weights) -> Any:
        """A_l R_l of all edges, [edge, degree, middle]."""
        product = self.rt.matmul(self.by_degree(radial).transpose(1, 0, 2), weights.a)
        return self.xp.ascontiguousarray(product.transpose(1, 0, 2))

    def by_pairs(self, kernel: str, from_: int, to: int, pair: int, *args: Any) -> None:
        """A kernel with a warp for each entry; `pair` numbers of a pair are in shared memory."""
        bytes_of_warp = (WARP * pair + WARP) * self.dtype.itemsize
        warps = max(1, min(NODE_THREADS // WARP, (200 << 10) // bytes_of_warp))
        grid = -(-(to - from_) // warps), self.parts
        self.run(
            kernel, grid, *self.graph, *args, shared=warps * bytes_of_warp, threads=warps * WARP
        )

    @property
    def parts(self) -> int:
        """In how many parts the channels are taken."""
        return int(-(-self.a.channels // self.line))

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.a.num_spherical, self.a.channels, self.a.middle

    def into(self, second: bool, gy: Any, y: Any, gu: Any, tgu: Any = None) -> None:
        """y of entries, and gradients by their directions, see `pairs_into`."""
        a = self.a
        args: tuple[Any, ...]
        if second:
            args = self.t, self.tt, a.embedding, self.tx, self.weights.b, self._tb(), gy, y, gu, tgu
        else:
            args = self.t, a.embedding, self.weights.b, gy, y, gu
        pair = (4 if second else 2) * CHUNK + 6
        kernel = "pairs_into_second" if second else "pairs_into"
        self.by_pairs(kernel, 0, a.num_entries, pair, a.out_entries, *self.sizes, *args)

    def back(
        self,
        second: bool,
        from_: int,
        to: int,
        gq: Any,
        gu: Any,
        met: Any,
        tgq: Any = None,
        tgu: Any = None,
    ) -> None:
        """Gradients by Q of some entries, and by their directions, see `pairs_back`."""
        a = self.a
        here = from_, to, a.num_src, a.out_offsets, a.out_nodes, a.out_edges, *self.sizes
        args: tuple[Any, ...]
        if second:
            args = (
                self.t, self.tt, a.embedding, self.tx, self.weights.b, self._tb(), a.gy, gq, tgq,
                gu, tgu, met,
            )  # fmt: skip
        else:
            args = self.t, a.embedding, self.weights.b, a.gy, gq, gu, met
        pair = (3 if second else 2) * self.degrees + 7
        self.by_pairs(
            "pairs_back_second" if second else "pairs_back", from_, to, pair, *here, *args
        )

    def _tb(self) -> Any:
        return None if self.tweights is None else self.tweights.b

    def to_edges(self, table: Any, out: Any, accumulate: bool) -> None:
        """The sums over the entries of each edge."""
        width = table.shape[1]
        rows = neighbours.of_edges(self.a, edges=self.a.id_entries)
        place = Columns(out, width, 0)
        neighbours.add(self.rt, rows, Columns(table, width, 0), width, place, accumulate)

    def chunks(self) -> list[tuple[int, int]]:
        """Entries whose gradients by Q are kept at once."""
        step = max(1, MOST // (self.a.num_spherical * self.a.channels))
        entries = self.a.num_entries
        return [(start, min(start + step, entries)) for start in range(0, entries, step)]

    def by_vectors(self, by_ends: list[Any], out: Any, accumulate: bool) -> None:
        """From gradients by directions at both ends of pairs, with tangents or without."""
        sums = []
        for ends in by_ends:
            total = ends[0].sum(1) + ends[1].sum(1)
            edges = self.empty(self.a.num_edges, 3)
            self.to_edges(total, edges, False)
            sums.append(edges)
        args = self.a.num_edges, self.u, self.tu, sums[0], sums[1] if len(sums) > 1 else None
        self.run("by_vectors", blocks(self.a.num_edges, 1), *args, accumulate, out)


def _plus(*terms: Any) -> Any:
    """The sum of those that are there."""
    there = [term for term in terms if term is not None]
    return functools.reduce(lambda x, y: x + y, there) if there else None


def forward(rt: Runtime, a: Any) -> None:
    self = _Triplets(rt, a)
    y = self.empty(a.num_entries, a.channels)
    self.into(False, None, y, None)
    self.to_edges(y, a.y, a.accumulate)


class _Sums:
    """Gradients by radial parts, embeddings and weights, chunk by chunk of entries."""

    def __init__(self, self_: _Triplets, wanted: int) -> None:
        self.of, self.wanted = self_, wanted
        a = self_.a
        columns = a.num_spherical * a.num_radial
        self.radial: Any = self_.empty(a.num_entries, columns) if wanted & 2 else None
        self.embedding: Any = self_.empty(a.num_entries, a.channels) if wanted & 4 else None
        self.by_a: Any = None
        self.by_b: Any = None

    def product(self, x: Any, y: Any) -> Any:
        """x y over the last and the first axis, of which x has two before."""
        flat = self.of.rt.matmul(x.reshape(-1, x.shape[-1]), y)
        return flat.reshape(*x.shape[:-1], y.shape[-1])

    def joined(self, x: Any, y: Any) -> Any:
        """The sum of the outer products of their last axes."""
        x, y = (z.reshape(-1, z.shape[-1]) for z in (x, y))
        return self.of.rt.matmul(x.T, y)

    def add(self, start: int, end: int, gq: Any, tgq: Any, met: Any, second: bool) -> None:
        of, a = self.of, self.of.a
        ids = a.in_edges[start:end] - 1

        def if_met(rows: Any) -> Any:
            """Rows of entries; 0, whatever is there, where there is no pair."""
            return of.xp.where(met.reshape(-1, *(1,) * (rows.ndim - 1)) != 0, rows, 0)

        def of_pairs(array: Any) -> Any:
            return None if array is None else if_met(array[ids])

        b, t, tt = of.weights.b, of_pairs(of.t), of_pairs(of.tt)
        x, tx = (None if z is None else z[:, None] for z in map(of_pairs, (a.embedding, of.tx)))
        tb = None if of.tweights is None else of.tweights.b
        if self.wanted & 4:
            k = self.product(t, b.T)
            terms = k * gq
            if second:
                tk = _plus(
                    None if tt is None else self.product(tt, b.T),
                    None if tb is None else self.product(t, tb.T),
                )
                terms = _plus(None if tk is None else tk * gq, None if tgq is None else k * tgq)
            self.embedding[start:end] = 0 if terms is None else if_met(terms.sum(1))
        if not self.wanted & 10:
            return
        gk = x * gq
        tgk = _plus(None if tx is None else tx * gq, None if tgq is None else x * tgq)
        gt = self.product(gk, b)
        tgt = _plus(
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
            self.by_b = _plus(self.by_b, *(self.joined(g, s) for g, s in _there(pairs_k)))
            self.by_a = _plus(self.by_a, *(self._by_a(g, r) for g, r in _there(factors)))

    def _by_radial(self, pairs: list[Any], count: int) -> Any:
        products = (
            self.of.rt.matmul(g.transpose(1, 0, 2), w.a.transpose(0, 2, 1))
            for g, w in _there(pairs)
        )
        total = _plus(*products)
        return None if total is None else total.transpose(1, 0, 2).reshape(count, -1)

    def _by_a(self, g: Any, radial: Any) -> Any:
        r = self.of.by_degree(radial)
        return self.of.rt.matmul(r.transpose(1, 2, 0), g.transpose(1, 0, 2))

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


def _pull(self: _Triplets, prefix: str, wanted: int, second: bool, y: Any) -> None:
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
    for start, end in self.chunks():
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
    _pull(_Triplets(rt, a), "g", a.wanted, False, None)


def double_backward(rt: Runtime, a: Any) -> None:
    wanted, written = a.wanted, Written(a)
    if not a.given:
        for bit, name in enumerate([*("d" + name for name in NAMES), "dgy"]):
            if wanted >> bit & 1:
                written.clear(name)
        return
    self = _Triplets(rt, a, a.given)
    y = self.empty(a.num_entries, a.channels) if wanted & 16 else None
    _pull(self, "d", wanted, True, y)
    if y is not None:
        self.to_edges(y, a.dgy, a.accumulate)
