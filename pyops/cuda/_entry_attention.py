"""Attention with per-entry scores: these are not sums of node scores of both ends.

Scores and their derivatives are [entries, heads] in CSC order, kept for the duration of a call;
the weighted features are gathered.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from . import _neighbours as neighbours
from ._heads import ALPHA, BACK, MEANS, SUMS, WEIGHTS, Attention, Features, Intermediates, Term

if TYPE_CHECKING:
    from ._array import DeviceArray, DType
    from ._declared import GatV2, TransformerConv
    from ._neighbours import Rows
    from ._runtime import Runtime

IDENTITY = 2


class EntryAttention(Attention):
    """Weighted sums of values over entries, and the gradients by the scores of the weights."""

    scores_by_entry = True
    inputs: tuple[str, ...]
    """Names of the inputs."""
    a: GatV2 | TransformerConv
    values: Features
    """Values that are summed."""
    tvalues: Features | None = None
    """Their tangent."""
    weights: DeviceArray
    """Mask times alpha."""
    tweights: DeviceArray | None = None

    def __init__(
        self, rt: Runtime, a: GatV2 | TransformerConv, features: DType, second: bool
    ) -> None:
        super().__init__(rt, a, features)
        self.second, self.known = second, Intermediates()

    def gradients_by_inputs(self, prefix: str) -> list[DeviceArray | None]:
        """Return the arrays of the requested gradients, None for the others."""
        return [self.a.array(prefix + name) for name in self.inputs]

    @abstractmethod
    def vjp(self, prefix: str) -> None:
        """Compute the requested gradients, those of first order ("g") or of second ("d")."""

    def features(
        self, array: DeviceArray | None, edges: DeviceArray | None = None, scale: float = 1.0
    ) -> Features:
        return Features(array, self.heads * self.width, self.width, scale, edges)

    def tangent(
        self, array: DeviceArray | None, edges: DeviceArray | None = None, scale: float = 1.0
    ) -> Features | None:
        """Return features, None if there are neither those of nodes nor of edges."""
        return None if array is None and edges is None else self.features(array, edges, scale)

    def softmax_of(self, scores: DeviceArray, tangents: DeviceArray | None) -> None:
        """Compute the softmax of the scores."""
        self.scores = self.heads, IDENTITY, 0.0, None, None, scores, self.a.mask
        self.weights = self.by_entry()
        self.softmax(None if self.second else self.weights)
        if self.second:
            self.known = Intermediates(tangents=(None, None, tangents, self.a.hmask))

    def store_alpha(self) -> None:
        self.entry_step(ALPHA, self.known, first=self.a.alpha)

    def weight_tangents(self) -> None:
        """Recompute the weights, and compute their tangents."""
        self.tweights = self.by_entry()
        self.entry_step(MEANS, self.known, first=self.weights)
        self.known = replace(self.known, mean=self.sum_incoming(self.weights))
        self.entry_step(WEIGHTS, self.known, first=self.weights, second=self.tweights)

    def sum_values(self, out: DeviceArray) -> None:
        """`out` (+)= the weighted sums of the values, or their tangents."""
        self.sum_sources(self.terms(self.weights, self.tweights, self.values, self.tvalues), out)

    def terms(
        self,
        weights: DeviceArray | None,
        tweights: DeviceArray | None,
        features: Features,
        tangent: Features | None,
    ) -> list[Term]:
        """Return the terms of a sum of weights times features, or of its tangent."""
        if not self.second:
            return [(weights, features)]
        return [(tweights, features), *([] if tangent is None else [(weights, tangent)])]

    def by_scores(self, gmask: DeviceArray | None) -> tuple[DeviceArray, DeviceArray | None]:
        """Return the gradients by the scores and their tangents; store those by the mask."""
        dots, tdots = self.by_entry(), None if self.tvalues is None else self.by_entry()
        self.dot(
            self.a.in_nodes, self.owners(), self.gradients(), self.values, dots,
            other=self.tvalues, other_dots=tdots,
        )  # fmt: skip
        self.known = replace(self.known, dots=dots, tdots=tdots)
        both = self.by_entry((1 + self.second) * self.heads)
        self.entry_step(SUMS, self.known, first=both)
        self.known = replace(self.known, sums=self.sum_incoming(both))
        second = self.by_entry() if self.second else None
        masked = None if gmask is None else self.by_entry()
        self.entry_step(BACK, self.known, first=dots, second=second, masked=masked)
        if gmask is not None and masked is not None:
            self.sum(self.edge_rows(), masked, gmask, self.a.accumulate)
        return dots, second

    def rows_of_terms(self) -> Rows:
        return replace(self.incoming, edges=self.a.in_edges)

    def outgoing(self) -> tuple[Rows, DeviceArray]:
        """Return the entries of each source, and their positions in CSC order."""
        rows = neighbours.outgoing(self.graph, nodes=self.a.out_nodes)
        return rows, self.graph._index("out_entries")

    def of_edges(self) -> tuple[Rows, DeviceArray]:
        """Return the entries of each edge, and their positions in CSC order."""
        nodes, _ = neighbours.ends_by_edge(self.graph)
        return neighbours.of_edges(self.graph, nodes=nodes), self.a.id_entries

    def double_backward(self) -> None:
        """Compute the requested gradients of second order."""
        self.weight_tangents()
        if self.a.dgy is not None:
            self.sum_values(self.a.dgy)
        if any(out is not None for out in self.gradients_by_inputs("d")):
            self.vjp("d")
