"""Layers that reduce messages along edges, other than attention, as steps.

The lowerings have one form and share few lines, so they are one module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..._network_order import in_order
from ..nn._messages import FLOWS
from ..nn._networks import Layers, network_of
from ..nn._reductions import SUMS
from ..nn.cf_conv import CFConv
from ..nn.edge_conv import EdgeConv
from ..nn.gcn_conv import GCNConv
from ..nn.gin_conv import GINConv
from ..nn.graph_conv import GraphConv
from ..nn.nn_conv import NNConv, _layers
from ..nn.rgcn_conv import RGCNConv
from ..nn.sage_conv import SAGEConv
from . import functions
from .builder import Builder, Ref, UnsupportedError, lowering
from .edges import LayerEdges, by_layer, pair_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...models._calls import Scalar


def _weight(builder: Builder, given: object) -> Ref | None:
    """Return edge weights as a vector."""
    if given is None or isinstance(given, Ref):
        return None if given is None else builder.flat(given)
    raise UnsupportedError(f"edge_weight: expected a tensor, got {given!r:.60}")


@lowering(GCNConv)
def _gcn(
    builder: Builder, layer: GCNConv, x: object, edge_index: object, edge_weight: object = None
) -> Ref:
    if layer.cached:
        raise UnsupportedError("cached: expected False, got True")
    if not isinstance(x, Ref):
        raise UnsupportedError(f"x: expected a tensor, got {x!r:.60}")
    weight = _weight(builder, edge_weight)
    loops = "" if not layer.add_self_loops else "replace" if weight is None else "complete"
    edges = LayerEdges.of(builder, layer, edge_index, (x, x), loops=loops)
    rows = builder.linear(layer.lin, x)
    bias = builder.tensor(layer.bias)
    if not layer.normalize:
        return builder.add(by_layer(builder, layer, edges.graph, rows, weight=weight), bias)
    if weight is None:
        totals = builder.degrees(edges.graph)
    else:
        if loops:
            fill = builder.full(x, 2.0 if layer.improved else 1.0)
            weight = builder.concat([weight, fill], 0)
        totals = builder.aggregate(edges.graph, edge=builder.column(weight))
    scale = _inverse_root(builder, totals)
    if layer.aggr_module is not None:
        raise UnsupportedError("aggr: expected one that commutes with normalisation")
    out = by_layer(builder, layer, edges.graph, builder.multiply(rows, scale), weight=weight)
    return builder.add(builder.multiply(out, scale), bias)


def _inverse_root(builder: Builder, x: Ref) -> Ref:
    """Return the power -1/2, with 0 in place of infinity."""
    empty = builder.binary("equal", x, 0.0)
    root = builder.unary("sqrt", builder.add(x, empty))
    return builder.divide(builder.binary("subtract", 1.0, empty), root)


@lowering(SAGEConv)
def _sage(
    builder: Builder, layer: SAGEConv, x: object, edge_index: object, size: object = None
) -> Ref:
    left, right = pair_of(x)
    if layer.flow != FLOWS[0] and not layer.root_weight:
        right = None
    ends = left, right
    if layer.project:
        left = builder.unary("relu", builder.linear(layer.lin, left))
    edges = LayerEdges.of(builder, layer, edge_index, ends, size)
    out = builder.linear(layer.lin_l, by_layer(builder, layer, edges.graph, left))
    if layer.root_weight and right is not None:
        right = left if right is ends[0] and not layer.project else right
        out = builder.add(out, builder.linear(layer.lin_r, right))
    return functions.normalized(builder, out, 2.0, -1) if layer.normalize else out


@lowering(GraphConv)
def _graph_conv(
    builder: Builder,
    layer: GraphConv,
    x: object,
    edge_index: object,
    edge_weight: object = None,
    size: object = None,
) -> Ref:
    left, right = pair_of(x)
    edges = LayerEdges.of(builder, layer, edge_index, (left, right), size)
    weight = _weight(builder, edge_weight)
    out = by_layer(builder, layer, edges.graph, left, weight=weight)
    root = None if right is None else builder.linear(layer.lin_root, right)
    return builder.add(builder.linear(layer.lin_rel, out), root)


@lowering(GINConv)
def _gin(
    builder: Builder, layer: GINConv, x: object, edge_index: object, size: object = None
) -> Ref:
    left, right = pair_of(x)
    edges = LayerEdges.of(builder, layer, edge_index, (left, right), size)
    out = by_layer(builder, layer, edges.graph, left)
    if right is not None:
        factor = builder.add(builder.parameter(layer.eps), 1.0)
        out = builder.add(out, builder.multiply(right, factor))
    return builder.apply(layer.nn, out)


@lowering(EdgeConv)
def _edge_conv(builder: Builder, layer: EdgeConv, x: object, edge_index: object) -> Ref:
    left, right = pair_of(x)
    if right is None:
        raise UnsupportedError("x: expected features of the destinations, got None")
    edges = LayerEdges.of(builder, layer, edge_index, (left, right))
    network = network_of(layer.nn)
    if network is None:
        rows = edges.rows_of(right, "destinations")
        others = builder.binary("subtract", edges.rows_of(left, "sources"), rows)
        messages = builder.apply(layer.nn, builder.concat([rows, others], 1))
        return by_layer(builder, layer, edges.graph, edge=messages)
    first, layers = network
    weight = builder.parameter(first.weight)
    half = weight.columns // 2
    of_destination, of_difference = (
        builder.columns(weight, start, start + half) for start in (0, half)
    )
    own = builder.binary("subtract", of_destination, of_difference)
    bias = builder.tensor(first.bias)
    inputs = {
        "x_src": left,
        "params": params_of(builder, layers, [of_difference, own], bias),
        "x_dst": right,
    }
    options: dict[str, Scalar] = dict(layers.options)
    if layer.aggr_module is None and layer.aggr in SUMS:
        options["reduce"] = SUMS[str(layer.aggr)]
        return builder.step("edge_network", inputs, options, edges.graph)
    messages = builder.step("edge_mlp", inputs, options, edges.graph)
    return by_layer(builder, layer, edges.graph, edge=messages)


def params_of(builder: Builder, layers: Layers, weights: Sequence[Ref], bias: Ref | None) -> Ref:
    """Return the block of `pyops.blocks.pack_edge_network`, as `Layers.params`."""

    def or_zeros(weight: Ref, bias: Ref | None) -> Ref:
        return builder.full(weight, 0.0) if bias is None else bias

    others = [builder.parameter(layer.weight) for layer in layers.linears]
    biases = [builder.tensor(layer.bias) for layer in layers.linears]
    norm = [] if layers.norm is None else [layers.norm.weight, layers.norm.bias]
    return builder.block(
        in_order(
            weights,
            others,
            [
                or_zeros(weights[0], bias),
                *(or_zeros(*pair) for pair in zip(others, biases, strict=True)),
            ],
            [builder.parameter(part) for part in norm],
        )
    )


@lowering(NNConv)
def _nn_conv(
    builder: Builder,
    layer: NNConv,
    x: object,
    edge_index: object,
    edge_attr: object = None,
    size: object = None,
) -> Ref:
    left, right = pair_of(x)
    if layer.flow != FLOWS[0] and not layer.root_weight:
        right = None
    edges = LayerEdges.of(builder, layer, edge_index, (left, right), size)
    features = edges.features(edge_attr, 0.0)
    if features is None:
        raise UnsupportedError("edge_attr: expected features of the edges, got None")
    if layer._by_message:
        each = builder.step("per_edge", graph=edges.graph)
        messages = _matrix_products(builder, layer, each, left, features)
        out = by_layer(builder, layer, edges.graph, edge=messages)
    else:
        out = _matrix_products(builder, layer, edges.graph, left, features)
        out = edges.mean(out) if layer.aggr == "mean" else out
    if right is not None and layer.root_weight:
        out = builder.add(out, builder.linear(layer.lin, right))
    return builder.add(out, builder.tensor(layer.bias))


def _matrix_products(builder: Builder, layer: NNConv, graph: Ref, x: Ref, features: Ref) -> Ref:
    """Return the sums of features times the matrices of the edges."""
    layers = _layers(layer.nn)
    if layers is None:
        matrices = builder.apply(layer.nn, features)
        return builder.step("gno_aggregate", {"features": x, "kappa": matrices}, {}, graph)
    if layers.fused is None:
        hidden = features
        for one in layers.others:
            hidden = builder.apply(one, hidden)
        inputs: dict[str, object] = {
            "features": x,
            "hidden_layer": hidden,
            "weight": builder.parameter(layers.last.weight),
            "bias": builder.tensor(layers.last.bias),
        }
        return builder.step("kernel_conv", inputs, {}, graph)
    first, activation = layers.fused
    parts = []
    for linear in (first, layers.last):
        weight, bias = builder.parameter(linear.weight), builder.tensor(linear.bias)
        parts += [builder.transpose(weight), builder.full(weight, 0.0) if bias is None else bias]
    inputs = {"features": x, "coords": features, "params": builder.block(parts)}
    options: dict[str, Scalar] = {"hidden": first.weight.shape[0], "activation": activation}
    return builder.step("gno_conv", inputs, options, graph)


@lowering(CFConv)
def _cf_conv(
    builder: Builder,
    layer: CFConv,
    x: object,
    edge_index: object,
    edge_weight: Ref,
    edge_attr: Ref,
) -> Ref:
    left, right = pair_of(x)
    edges = LayerEdges.of(builder, layer, edge_index, (left, right))
    angles = builder.multiply(builder.column(edge_weight), torch.pi / float(layer.cutoff))
    factors = builder.multiply(builder.add(builder.unary("cos", angles), 1.0), 0.5)
    filters = builder.multiply(builder.apply(layer.nn, edge_attr), factors)
    rows = builder.linear(layer.lin1, left)
    gathered = builder.step("edge_update", {"x_src": rows}, {}, edges.graph)
    out = builder.aggregate(edges.graph, edge=builder.multiply(gathered, filters))
    return builder.linear(layer.lin2, out)


@lowering(RGCNConv)
def _rgcn(
    builder: Builder, layer: RGCNConv, x: object, edge_index: object, edge_type: object = None
) -> Ref:
    left, right = pair_of(x)
    if right is None or left.kind != "real" or right.kind != "real":
        raise UnsupportedError("x: expected features of sources and destinations")
    if not isinstance(edge_type, Ref):
        raise UnsupportedError(f"edge_type: expected a tensor, got {edge_type!r:.60}")
    edges = LayerEdges.of(builder, layer, edge_index, (left, right))
    relations = layer.num_relations
    weight = builder.parameter(layer.weight)
    if layer.comp is not None:
        weight = builder.matmul(builder.parameter(layer.comp), weight)
    graph = builder.step("by_relation", {"index": edge_type}, {"relations": relations}, edges.graph)
    sums = by_layer(builder, layer, graph, left)
    blocks = layer.num_blocks or 1
    width, size = left.columns // blocks, weight.columns // blocks
    parts = []
    for block in range(blocks):
        rows = builder.columns(sums, block * width, (block + 1) * width)
        matrix = builder.columns(weight, block * size, (block + 1) * size)
        parts.append(
            builder.matmul(
                builder.reshape(rows, -1, relations * width),
                builder.reshape(matrix, relations * width, -1),
            )
        )
    root = None if layer.root is None else builder.matmul(right, builder.parameter(layer.root))
    return builder.add(builder.concat(parts, 1), root, builder.tensor(layer.bias))
