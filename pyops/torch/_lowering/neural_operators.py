"""Layers of neural operators as steps."""

from __future__ import annotations

import numpy as np
import torch

from ...graph import Graph
from ..nn.gno_block import GNOBlock
from ..nn.integral_transform import IntegralTransform
from ..nn.linear_channel_mlp import LinearChannelMLP, linear_network
from ..nn.neighbor_search import LEAST
from ..nn.neighbor_search import search as neighbours_of
from ..nn.sinusoidal_embedding import SinusoidalEmbedding
from .builder import Builder, Ref, UnsupportedError, lowering
from .edges import as_graph


@lowering(LinearChannelMLP)
def _mlp(builder: Builder, network: LinearChannelMLP, x: Ref) -> Ref:
    dropout = network.dropout or [None] * len(network.fcs)
    for place, (layer, drop) in enumerate(zip(network.fcs, dropout, strict=True)):
        x = builder.linear(layer, x)
        if place < network.n_layers - 1:
            x = builder.apply(network.non_linearity, x)
        x = x if drop is None else builder.apply(drop, x)
    return x


@lowering(SinusoidalEmbedding)
def _embedding(builder: Builder, layer: SinusoidalEmbedding, x: Ref) -> Ref:
    """Write sines and cosines, interleaved; the frequencies are rounded as torch does."""
    kind = torch.from_numpy(np.empty(0, builder.dtype)).dtype
    places = torch.arange(layer.num_frequencies or 0).to(kind)
    if layer.embedding_type == "nerf":
        frequencies = 2**places * torch.pi
    else:
        assert layer.max_positions is not None
        frequencies = (1 / layer.max_positions) ** (places / len(places) * 2)
    values = tuple(frequencies.tolist())
    constant = builder.step("constant", {}, {"values": values})
    angles = builder.reshape(builder.multiply(builder.reshape(x, -1, 1), constant), -1, 1)
    waves = builder.concat([builder.unary(name, angles) for name in ("sin", "cos")], 1)
    return builder.reshape(waves, -1, x.columns * 2 * len(values))


@lowering(GNOBlock)
def _gno_block(builder: Builder, block: GNOBlock, y: Ref, x: Ref, f_y: Ref | None = None) -> Ref:
    """Write a layer whose neighbours are a graph from y to x, an input of the program."""

    def search() -> dict[str, Graph]:
        points, queries = (torch.from_numpy(builder.array(part)) for part in (y, x))
        splits, index = neighbours_of(points, queries, float(block.radius))
        return {"graph": Graph.from_csc(splits.numpy(), index.numpy(), len(points))}

    graph = builder.add_searched(block, "radius", [y, x], search)["graph"]
    transform, weight = block.integral_transform, None
    if transform.weighting_fn is not None:
        vectors = builder.step("edge_difference", {"x_src": y, "x_dst": x}, {}, graph)
        square = builder.unary("sum", builder.multiply(vectors, vectors), axis=1, keepdims=True)
        least = builder.multiply(builder.binary("equal", square, 0.0), LEAST**2)
        distance = builder.add(square, least)
        weight = builder.flat(builder.apply(transform.weighting_fn, distance))
    if block.pos_embedding is not None:
        y, x = (builder.apply(block.pos_embedding, part) for part in (y, x))
    return _integral(builder, transform, graph, y, x, f_y, weight)


@lowering(IntegralTransform)
def _transform(
    builder: Builder,
    layer: IntegralTransform,
    y: Ref,
    neighbors: object,
    x: Ref | None = None,
    f_y: Ref | None = None,
    weights: Ref | None = None,
) -> Ref:
    graph, x = as_graph(neighbors), y if x is None else x
    builder.set_sizes(graph, y.shape[0], x.shape[0])
    if weights is not None:
        neighbourhoods = builder.example(graph.name)
        assert isinstance(neighbourhoods, Graph)
        if weights.shape[0] != neighbourhoods.num_edges:  # those of points
            index = builder.step("sources", graph=graph)
            weights = builder.step("gather", {"x": weights, "index": index})
        if layer.weighting_fn is not None:
            weights = builder.apply(layer.weighting_fn, builder.column(weights))
        weights = builder.flat(weights)
    return _integral(builder, layer, graph, y, x, f_y, weights)


def _integral(
    builder: Builder,
    layer: IntegralTransform,
    graph: Ref,
    y: Ref,
    x: Ref,
    f: Ref | None,
    weight: Ref | None,
) -> Ref:
    kernel_f = f if layer.transform_type.startswith("nonlinear") else None
    factor = None if layer.transform_type == "nonlinear_kernelonly" else f
    reduce = layer.reduction if weight is None else "sum"

    def integrate(kernel: Ref, factor: Ref | None) -> Ref:
        if factor is not None:
            gathered = builder.step("edge_update", {"x_src": factor}, {}, graph)
            kernel = builder.multiply(kernel, gathered)
        return builder.aggregate(graph, edge=kernel, weight=weight, reduce=reduce)

    network = linear_network(layer.channel_mlp)
    if network is None:
        parts = {"x_src": y, "x_dst": x}
        pairs = builder.step("edge_update", parts, {}, graph)
        if kernel_f is not None:
            values = builder.step("edge_update", {"x_src": kernel_f}, {}, graph)
            pairs = builder.concat([pairs, values], 1)
        return integrate(builder.apply(layer.channel_mlp, pairs), factor)
    layers, act = network
    hidden = _first(builder, layers[0], graph, y, x, kernel_f)
    if len(layers) == 1:
        return integrate(hidden, factor)
    for one in layers[1:-1]:
        hidden = builder.linear(one, builder.apply(act, hidden))
    hidden, last = builder.apply(act, hidden), layers[-1]
    weights, bias = builder.parameter(last.weight), builder.tensor(last.bias)
    if factor is None:
        result = builder.product(integrate(hidden, None), weights)
        if bias is None:
            return result
        return builder.add(result, builder.multiply(_totals(builder, graph, weight, reduce), bias))
    if last.in_features > last.out_features:
        return integrate(builder.linear(last, hidden), factor)
    if factor.columns != last.out_features:
        ones = builder.step("constant", {}, {"values": (1.0,) * last.out_features})
        factor = builder.multiply(factor, ones)
    inputs = {
        "features": factor,
        "hidden_layer": hidden,
        "weight": weights,
        "bias": bias,
        "edge_weight": weight,
    }
    return builder.step("kernel_conv", inputs, {"kernel": "diagonal", "reduce": reduce}, graph)


def _totals(builder: Builder, graph: Ref, weight: Ref | None, reduce: str) -> Ref:
    """Return the reduction of the constant 1, a column."""
    if weight is not None:
        return builder.aggregate(graph, edge=builder.column(weight))
    counts = builder.degrees(graph)
    return counts if reduce == "sum" else builder.binary("minimum", counts, 1.0)


def _first(
    builder: Builder, layer: torch.nn.Linear, graph: Ref, y: Ref, x: Ref, kernel_f: Ref | None
) -> Ref:
    """Apply the first layer to points and combine the results of pairs."""
    weight, bias = builder.parameter(layer.weight), builder.tensor(layer.bias)
    middle, end = y.columns, y.columns + x.columns
    width = end + (0 if kernel_f is None else kernel_f.columns)
    if width != layer.in_features:
        raise UnsupportedError(
            f"channel_mlp: expected an input of {width} channels, got {layer.in_features}"
        )
    src = builder.product(y, builder.columns(weight, 0, middle))
    dst = builder.product(x, builder.columns(weight, middle, end), bias)
    if kernel_f is not None:
        src = builder.add(src, builder.product(kernel_f, builder.columns(weight, end, width)))
    return builder.step("edge_update", {"x_src": src, "x_dst": dst}, {"mode": "sum"}, graph)
