"""Dot-product attention on a device.

One gather of queries and keys computes the scores of each call; forward gathers the values once
more. Backward sums all gradients over rows: of destinations, of sources, of edges.
"""

from __future__ import annotations

from typing import Any

from .._entry_attention import EntryAttention, phases
from .._heads import Gathered
from .._runtime import Runtime


class _Dots(EntryAttention):
    """Scores from the products of queries with keys and the edge features added to these."""

    def __init__(self, rt: Runtime, a: Any, second: bool = False) -> None:
        super().__init__(rt, a, a.query.dtype, second)
        scale = self.width**-0.5
        edges = a.edge_features if self.has_edges else None
        moved = self.tangent("edge_features")
        self.queries = self.features(a.query, None, scale)
        self.keys = self.features(a.key, edges, scale)
        (self.values,) = self.features(a.value, edges)
        self.moved_queries = self.features(self.tangent("query"), None, scale)
        self.moved_keys = self.features(self.tangent("key"), moved, scale)
        self.moved = next(iter(self.features(self.tangent("value"), moved)), None)
        scores, tangents = self.numbers(), self.numbers() if second else None
        self.multiply(
            a.in_nodes, self.owners(), self.queries[0], self.keys[0], scores,
            tangent=self.tangent("query"), other=next(iter(self.moved_keys), None),
            other_dots=tangents,
        )  # fmt: skip
        self.soften_by(scores, tangents)

    def pull(self, query: Any, key: Any, value: Any, edge_features: Any, mask: Any) -> None:
        """Compute the gradients, or their tangents, that are requested."""
        a, gradients, accumulate = self.a, self.gradients(), self.a.accumulate
        by_values = self.terms(self.weights, self.tweights, [gradients], [])
        by_keys: list[tuple[Any, Gathered]] = []
        if a.wanted & 27:
            by_scores = self.by_scores(mask)
            by_keys = self.terms(*by_scores, self.queries, self.moved_queries)
            if query is not None:
                terms = self.terms(*by_scores, self.keys, self.moved_keys)
                self.weigh(self.inward(), None, terms, query, accumulate)
        for out, terms in (key, by_keys), (value, by_values):
            if out is not None:
                self.weigh(*self.outward(), terms, out, accumulate)
        if edge_features is not None:
            self.weigh(*self.of_edges(), [*by_keys, *by_values], edge_features, accumulate)


forward, attention, backward, double_backward = phases(
    _Dots, ("query", "key", "value", "edge_features", "mask")
)
