"""Parts of the layers that pass messages: their graphs, edge features and reductions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..nn._aggregating import _as_reduction
from ..nn._messages import FLOWS
from ..nn._reductions import EXTREMES, SUMS
from .builder import Builder, Ref, UnsupportedError

if TYPE_CHECKING:
    from ...models._calls import Scalar
    from ..nn._messages import Messages

REDUCE = {**SUMS, **EXTREMES, "mul": "mul"}
"""Reductions of `aggregate` by the names of layers."""


def pair_of(x: object) -> tuple[Ref, Ref | None]:
    """Return the features of sources and destinations."""
    both = (x, x) if isinstance(x, Ref) else x
    if isinstance(both, tuple | list) and len(both) == 2:
        left, right = both
        if isinstance(left, Ref) and isinstance(right, Ref | None):
            return left, right
    raise UnsupportedError(f"x: expected a tensor or a pair of tensors, got {x!r:.60}")


def as_graph(given: object) -> Ref:
    """Return the edges of a call, which have to be an input of kind "graph"."""
    if isinstance(given, Ref) and given.kind == "graph":
        return given
    raise UnsupportedError(
        f"edge_index: expected the edges that are an input of the model, got {given!r:.60}"
    )


@dataclass(frozen=True)
class LayerEdges:
    """Edges of a layer, with self loops if requested."""

    builder: Builder
    given: Ref
    """Graph of the call."""
    directed: Ref
    """Graph along which messages flow, without the self loops of the layer."""
    graph: Ref
    loops: bool = False

    @classmethod
    def of(
        cls,
        builder: Builder,
        layer: Messages,
        edge_index: object,
        ends: tuple[Ref, Ref | None],
        size: object = None,
        loops: str = "",
    ) -> LayerEdges:
        """Return the edges between nodes with these features.

        `loops` is the mode of `add_self_loops`, or "".
        """
        if size is not None:
            raise UnsupportedError(f"size: expected None, got {size!r:.60}")
        given = as_graph(edge_index)
        if ends[1] is not None:
            builder.set_sizes(given, ends[0].shape[0], ends[1].shape[0])
            builder.set_ends(given, ends[0], ends[1])
        directed = given
        if layer.flow != FLOWS[0]:
            directed = builder.step("reverse", graph=given)
        graph = directed
        if loops:
            graph = builder.step("add_self_loops", {}, {"mode": loops}, directed)
        return cls(builder, given, directed, graph, bool(loops))

    def features(self, given: object, fill: object) -> Ref | None:
        """Return the features of edges with those of self loops, a matrix."""
        if given is None:
            return None
        if not isinstance(given, Ref):
            raise UnsupportedError(f"edge_attr: expected a tensor, got {given!r:.60}")
        builder = self.builder
        features = builder.column(given)
        if not self.loops:
            return features
        others = builder.step("remove_self_loops", graph=self.given)
        if isinstance(fill, str) and fill in REDUCE:
            loop = reduced(builder, fill, others, edge=features)
        elif fill is None or isinstance(fill, int | float):
            degrees = builder.step("in_degrees", graph=self.given)
            loop = builder.full(degrees, 1.0 if fill is None else float(fill), features.columns)
        else:
            raise UnsupportedError(f"fill_value: expected a number or a text, got {fill!r:.60}")
        return builder.concat([features, loop], 0)

    def rows_of(self, x: Ref, end: str) -> Ref:
        """Return the rows of the sources or the destinations of all edges."""
        index = self.builder.step(end, graph=self.graph)
        return self.builder.step("gather", {"x": x, "index": index})

    def mean(self, total: Ref) -> Ref:
        """Return a sum divided by the in-degrees, at least 1."""
        degrees = self.builder.binary("maximum", self.builder.degrees(self.graph), 1.0)
        return self.builder.divide(total, degrees)


def reduced(
    builder: Builder,
    reduce: str,
    graph: Ref,
    x: Ref | None = None,
    edge: Ref | None = None,
    weight: Ref | None = None,
) -> Ref:
    """Reduce messages; products of no messages are 1."""
    total = builder.aggregate(graph, x, edge, weight, reduce=REDUCE[reduce])
    if reduce != "mul":
        return total
    return builder.add(total, builder.binary("equal", builder.degrees(graph), 0.0))


def by_layer(
    builder: Builder,
    layer: Messages,
    graph: Ref,
    x: Ref | None = None,
    edge: Ref | None = None,
    weight: Ref | None = None,
) -> Ref:
    """Reduce messages as a layer does."""
    if layer.aggr_module is None:
        assert isinstance(layer.aggr, str)
        return reduced(builder, layer.aggr, graph, x, edge, weight)
    found = _as_reduction(layer.aggr_module)
    if found is None:
        known = "sum, mean, max, min, softmax or var"
        raise UnsupportedError(f"aggr: expected {known}, got {layer.aggr}")
    options: dict[str, Scalar] = {"reduce": found[0]}
    if found[0] == "softmax":
        options["temperature"] = found[1]
    return builder.aggregate(graph, x, edge, weight, **options)
