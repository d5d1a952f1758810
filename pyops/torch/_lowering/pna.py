"""Principal neighbourhood aggregation as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..nn._degree_scaled import _LEAST, _STATISTICS, DegreeScaled, degree_scaled
from ..nn._linear import is_linear
from ..nn.pna_conv import PNAConv
from .builder import Builder, Ref, UnsupportedError, lowering
from .edges import LayerEdges

if TYPE_CHECKING:
    from collections.abc import Sequence


@lowering(PNAConv)
def _pna(
    builder: Builder, layer: PNAConv, x: Ref, edge_index: object, edge_attr: object = None
) -> Ref:
    assert isinstance(layer.aggr_module, torch.nn.Module)
    scaled = degree_scaled(layer.aggr_module)
    if scaled is None:
        raise UnsupportedError("aggregators: expected sum, mean, min, max, var and std")
    edges = LayerEdges.of(builder, layer, edge_index, (x, x))
    features = edges.features(edge_attr, 0.0)
    if features is not None:
        features = builder.linear(layer.edge_encoder, features)
    parts = []
    for tower, (pre, post) in enumerate(zip(layer.pre_nns, layer.post_nns, strict=True)):
        start = tower * layer.F_in if layer.divide_input else 0
        rows = builder.columns(x, start, start + layer.F_in)
        messages = _messages(builder, edges, pre, rows, features)
        reduced = _scaled(builder, edges.graph, scaled, messages)
        parts.append(builder.apply(post, builder.concat([rows, *reduced], 1)))
    return builder.linear(layer.lin, builder.concat(parts, 1))


def _messages(
    builder: Builder, edges: LayerEdges, network: torch.nn.Module, rows: Ref, features: Ref | None
) -> Ref:
    """Return the results of a network, whose first layer is a sum of products with both ends."""
    assert isinstance(network, torch.nn.Sequential)
    first, *others = network
    if not is_linear(first):
        raise UnsupportedError("pre_nns: expected linear layers without hooks")
    weight, width = builder.parameter(first.weight), rows.columns
    count = weight.columns // width
    weights = [builder.columns(weight, i * width, (i + 1) * width) for i in range(count)]
    inputs = {
        "x_src": builder.product(rows, weights[1]),
        "x_dst": builder.product(rows, weights[0], builder.tensor(first.bias)),
        "edge": None if features is None else builder.product(features, weights[2]),
    }
    messages = builder.step("edge_update", inputs, {"mode": "sum"}, edges.graph)
    for module in others:
        messages = builder.apply(module, messages)
    return messages


def _scaled(builder: Builder, graph: Ref, scaled: DegreeScaled, messages: Ref) -> Sequence[Ref]:
    """Return the statistics of messages times the factors of degrees, as `DegreeScaled`."""
    values = []
    for kind in scaled.kinds:
        value = builder.aggregate(graph, edge=messages, reduce=_STATISTICS[kind])
        if kind == "StdAggregation":
            positive = builder.binary("less", _LEAST, value)
            root = builder.unary("sqrt", builder.binary("maximum", value, _LEAST))
            value = builder.multiply(positive, root)
        values.append(value)
    parts = []
    for scaler in scaled.scalers:
        factor = _factor(builder, scaled, builder.degrees(graph), scaler)
        parts += [v if factor is None else builder.multiply(v, factor) for v in values]
    return parts


def _factor(builder: Builder, scaled: DegreeScaled, degrees: Ref, scaler: str) -> Ref | None:
    if scaler == "identity":
        return None
    positive = builder.binary("maximum", degrees, 1.0)
    if scaler in ("linear", "inverse_linear"):
        mean = builder.parameter(scaled.mean)
        return (
            builder.divide(degrees, mean) if scaler == "linear" else builder.divide(mean, positive)
        )
    mean = builder.parameter(scaled.mean_log)
    counts = degrees if scaler == "amplification" else positive
    logarithm = builder.unary("log", builder.add(counts, 1.0))
    if scaler == "amplification":
        return builder.divide(logarithm, mean)
    return builder.divide(mean, logarithm)
