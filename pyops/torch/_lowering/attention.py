"""Attention layers as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..nn.gat_conv import GATConv
from ..nn.gatv2_conv import GATv2Conv
from ..nn.transformer_conv import TransformerConv
from .builder import Builder, Ref, UnsupportedError, lowering
from .edges import LayerEdges, pair_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...models._calls import Scalar
    from ..nn._attention import Attention


def _check(layer: Attention, return_attention_weights: object) -> None:
    if layer.training and layer.dropout > 0:
        raise UnsupportedError("dropout: expected training=False, as in model.eval()")
    if return_attention_weights is not None:
        raise UnsupportedError("return_attention_weights: expected None")
    if layer.aggr_module is not None or layer.aggr not in ("add", "sum", "mean"):
        raise UnsupportedError(f"aggr: expected add, sum or mean, got {layer.aggr}")


def _both_ends(layer: Attention, x: object, return_attention_weights: object) -> tuple[Ref, Ref]:
    """Check a layer that needs both, and return the features of sources and destinations."""
    _check(layer, return_attention_weights)
    left, right = pair_of(x)
    if right is None:
        raise UnsupportedError("x: expected features of the destinations, got None")
    return left, right


def _projected(
    builder: Builder,
    layer: GATv2Conv | TransformerConv,
    edges: LayerEdges,
    edge_attr: object,
    fill: object,
) -> Ref | None:
    """Return the features of edges after the linear layer."""
    features = edges.features(edge_attr, fill)
    return None if features is None else builder.linear(layer.lin_edge, features)


def _attended(
    builder: Builder,
    layer: Attention,
    edges: LayerEdges,
    inputs: Mapping[str, object],
    **options: Scalar,
) -> Ref:
    settings: dict[str, Scalar] = {"heads": layer.heads, "concat": bool(layer.concat), **options}
    out = builder.step(layer._operator, inputs, settings, edges.graph)
    return edges.mean(out) if layer.aggr == "mean" else out


@lowering(GATConv)
def _gat(
    builder: Builder,
    layer: GATConv,
    x: object,
    edge_index: object,
    edge_attr: object = None,
    size: object = None,
    return_attention_weights: object = None,
) -> Ref:
    _check(layer, return_attention_weights)
    left, right = pair_of(x)
    loops = "replace" if layer.add_self_loops else ""
    edges = LayerEdges.of(builder, layer, edge_index, (left, right), size, loops)
    res = None if right is None or layer.res is None else builder.linear(layer.res, right)
    first, second = (
        (layer.lin, layer.lin) if layer.lin is not None else (layer.lin_src, layer.lin_dst)
    )
    x_src = builder.linear(first, left)
    if right is None:
        degrees = builder.step("in_degrees", graph=edges.graph)
        x_dst = builder.full(degrees, 0.0, x_src.columns)
    else:
        same = right is left and layer.lin is not None
        x_dst = x_src if same else builder.linear(second, right)
    parts = [builder.parameter(layer.att_src), builder.parameter(layer.att_dst)]
    scores = _edge_scores(builder, layer, edges, edge_attr)
    if scores is not None:
        by_heads = builder.reshape(parts[0], layer.heads, layer.out_channels)
        parts.append(builder.full(by_heads, 1.0))
    inputs = {
        "x_src": x_src,
        "x_dst": x_dst,
        "attention": builder.block(parts),
        "edge_features": scores,
    }
    slope = float(layer.negative_slope)
    out = _attended(builder, layer, edges, inputs, negative_slope=slope)
    return builder.add(out, res, builder.tensor(layer.bias))


def _edge_scores(
    builder: Builder, layer: GATConv, edges: LayerEdges, edge_attr: object
) -> Ref | None:
    """Return the scores of edge features, whose projection is combined with the attention."""
    if layer.lin_edge is None:
        return None
    features = edges.features(edge_attr, layer.fill_value)
    if features is None:
        return None
    weight, attention = (
        builder.parameter(part) for part in (layer.lin_edge.weight, layer.att_edge)
    )
    scaled = builder.multiply(weight, builder.reshape(attention, -1, 1))
    by_heads = builder.reshape(builder.transpose(scaled), -1, layer.out_channels)
    total = builder.unary("sum", by_heads, axis=1)
    return builder.matmul(features, builder.reshape(total, -1, layer.heads))


@lowering(GATv2Conv)
def _gat_v2(
    builder: Builder,
    layer: GATv2Conv,
    x: object,
    edge_index: object,
    edge_attr: object = None,
    return_attention_weights: object = None,
) -> Ref:
    left, right = _both_ends(layer, x, return_attention_weights)
    loops = "replace" if layer.add_self_loops else ""
    edges = LayerEdges.of(builder, layer, edge_index, (left, right), loops=loops)
    res = None if layer.res is None else builder.linear(layer.res, right)
    x_src = builder.linear(layer.lin_l, left)
    same = right is left and layer.share_weights
    x_dst = x_src if same else builder.linear(layer.lin_r, right)
    inputs = {
        "x_src": x_src,
        "x_dst": x_dst,
        "attention": builder.flat(builder.parameter(layer.att)),
        "edge_features": _projected(builder, layer, edges, edge_attr, layer.fill_value),
    }
    slope = float(layer.negative_slope)
    out = _attended(builder, layer, edges, inputs, negative_slope=slope)
    return builder.add(out, res, builder.tensor(layer.bias))


@lowering(TransformerConv)
def _transformer(
    builder: Builder,
    layer: TransformerConv,
    x: object,
    edge_index: object,
    edge_attr: object = None,
    return_attention_weights: object = None,
) -> Ref:
    left, right = _both_ends(layer, x, return_attention_weights)
    edges = LayerEdges.of(builder, layer, edge_index, (left, right))
    features = _projected(builder, layer, edges, edge_attr, 0.0)
    inputs = {
        "query": builder.linear(layer.lin_query, right),
        "key": builder.linear(layer.lin_key, left),
        "value": builder.linear(layer.lin_value, left),
        "edge_features": features,
    }
    out = _attended(builder, layer, edges, inputs)
    if not layer.root_weight:
        return out
    own = builder.linear(layer.lin_skip, right)
    if layer.lin_beta is None:
        return builder.add(out, own)
    both = builder.concat([out, own, builder.binary("subtract", out, own)], 1)
    gate = builder.unary("sigmoid", builder.linear(layer.lin_beta, both))
    rest = builder.binary("subtract", 1.0, gate)
    return builder.add(builder.multiply(gate, own), builder.multiply(rest, out))
