"""Dot-product attention on a device.

One gather of queries and keys computes the scores of each call; forward gathers the values once
more. Backward sums all gradients over rows: of destinations, of sources, of edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._entry_attention import EntryAttention

if TYPE_CHECKING:
    from .._declared import TransformerConv
    from .._heads import Term
    from .._runtime import Runtime


class _DotAttention(EntryAttention):
    """Scores from the products of queries with keys and the edge features added to these."""

    inputs = "query", "key", "value", "edge_features", "mask"
    a: TransformerConv

    def __init__(self, rt: Runtime, a: TransformerConv, second: bool = False) -> None:
        super().__init__(rt, a, a.query.dtype, second)
        scale, edges, tedges = self.width**-0.5, a.edge_features, a.hedge_features
        self.queries = self.features(a.query, None, scale)
        self.keys = self.features(a.key, edges, scale)
        self.values = self.features(a.value, edges)
        self.tqueries = self.tangent(a.hquery, None, scale)
        self.tkeys = self.tangent(a.hkey, tedges, scale)
        self.tvalues = self.tangent(a.hvalue, tedges)
        scores, tangents = self.by_entry(), self.by_entry() if second else None
        self.dot(
            a.in_nodes, self.owners(), self.queries, self.keys, scores, tangent=a.hquery,
            other=self.tkeys, other_dots=tangents,
        )  # fmt: skip
        self.softmax_of(scores, tangents)

    def vjp(self, prefix: str) -> None:
        query, key, value, edge_features, mask = self.gradients_by_inputs(prefix)
        accumulate = self.a.accumulate
        by_keys: list[Term] = []
        by_values = self.terms(self.weights, self.tweights, self.gradients(), None)
        if any(out is not None for out in (query, key, edge_features, mask)):
            by_scores = self.by_scores(mask)
            by_keys = self.terms(*by_scores, self.queries, self.tqueries)
            if query is not None:
                terms = self.terms(*by_scores, self.keys, self.tkeys)
                self.weighted_sums(self.rows_of_terms(), None, terms, query, accumulate)
        for out, terms in (key, by_keys), (value, by_values):
            if out is not None:
                self.weighted_sums(*self.outgoing(), terms, out, accumulate)
        if edge_features is not None:
            terms = [*by_keys, *by_values]
            self.weighted_sums(*self.of_edges(), terms, edge_features, accumulate)


def forward(rt: Runtime, a: TransformerConv) -> None:
    """Compute y."""
    _DotAttention(rt, a).sum_values(a.y)


def attention(rt: Runtime, a: TransformerConv) -> None:
    """Compute alpha."""
    _DotAttention(rt, a).store_alpha()


def backward(rt: Runtime, a: TransformerConv) -> None:
    """Compute gquery, gkey, gvalue, gedge_features and gmask, as requested."""
    _DotAttention(rt, a).vjp("g")


def double_backward(rt: Runtime, a: TransformerConv) -> None:
    """Compute dgy and the second-order gradients by all inputs, as requested."""
    _DotAttention(rt, a, second=True).double_backward()
