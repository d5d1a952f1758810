"""Blocks of mesh networks as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..nn._networks import layers_after, network_of
from ..nn._reductions import SUMS
from ..nn.mesh_graph_net import (
    MeshEdgeBlock,
    MeshGraphEdgeMLPConcat,
    MeshGraphEdgeMLPSum,
    MeshGraphNetProcessor,
    MeshNodeBlock,
    adds_features,
)
from .builder import Builder, Ref, lowering
from .convolutions import params_of
from .edges import as_graph, pair_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...models._calls import Scalar
    from ..nn._networks import Layers


@lowering(MeshGraphEdgeMLPConcat)
def _concat(
    builder: Builder,
    network: MeshGraphEdgeMLPConcat,
    efeat: Ref,
    nfeat: object,
    edges: object,
    residual: bool = False,
) -> Ref:
    graph, src, dst = _ends(builder, nfeat, edges)
    found = network_of(network.model)
    if found is None:
        parts = {"x_src": src, "x_dst": dst, "edge": efeat}
        result = builder.apply(network.model, builder.step("edge_update", parts, {}, graph))
        return builder.add(result, efeat) if residual else result
    first, layers = found
    weight, start, weights = builder.parameter(first.weight), 0, []
    for width in network._widths:
        weights.append(builder.columns(weight, start, start + width))
        start += width
    bias = builder.tensor(first.bias)
    return _computed(builder, layers, weights, bias, efeat, src, dst, graph, residual)


@lowering(MeshGraphEdgeMLPSum)
def _sum(
    builder: Builder,
    network: MeshGraphEdgeMLPSum,
    efeat: Ref,
    nfeat: object,
    edges: object,
    residual: bool = False,
) -> Ref:
    graph, src, dst = _ends(builder, nfeat, edges)
    weights = [
        builder.parameter(part) for part in (network.lin_efeat, network.lin_src, network.lin_dst)
    ]
    bias = builder.tensor(network.bias)
    layers = layers_after(network.lin_efeat.shape[0], [*network.model])
    if layers is not None:
        return _computed(builder, layers, weights, bias, efeat, src, dst, graph, residual)
    parts = {
        "x_src": builder.product(src, weights[1]),
        "x_dst": builder.product(dst, weights[2], bias),
        "edge": builder.product(efeat, weights[0]),
    }
    hidden = builder.step("edge_update", parts, {"mode": "sum"}, graph)
    result = builder.apply(network.model, hidden)
    return builder.add(result, efeat) if residual else result


def _ends(builder: Builder, nfeat: object, edges: object) -> tuple[Ref, Ref, Ref]:
    """Return the graph, and the features of sources and destinations."""
    graph, (src, dst) = as_graph(edges), pair_of(nfeat)
    dst = src if dst is None else dst
    builder.set_sizes(graph, src.shape[0], dst.shape[0])
    return graph, src, dst


def _computed(
    builder: Builder,
    layers: Layers,
    weights: Sequence[Ref],
    bias: Ref | None,
    efeat: Ref,
    src: Ref,
    dst: Ref,
    graph: Ref,
    residual: bool,
) -> Ref:
    of_edge, of_source, of_destination = weights
    inputs = {
        "x_src": src,
        "params": params_of(builder, layers, [of_source, of_destination, of_edge], bias),
        "x_dst": dst,
        "edge_features": efeat,
    }
    options: dict[str, Scalar] = {**layers.options, "residual": residual}
    return builder.step("edge_mlp", inputs, options, graph)


@lowering(MeshEdgeBlock)
def _edge_block(
    builder: Builder, block: MeshEdgeBlock, efeat: Ref, nfeat: object, graph: object
) -> tuple[Ref, object]:
    fused = adds_features(block.edge_mlp)
    found = builder.call(block.edge_mlp, efeat, nfeat, graph, *[True] * fused)
    if not fused:
        found = builder.add(found, efeat)
    assert isinstance(found, Ref)
    return found, nfeat


@lowering(MeshNodeBlock)
def _node_block(
    builder: Builder, block: MeshNodeBlock, efeat: Ref, nfeat: Ref, edges: object
) -> tuple[Ref, Ref]:
    graph, nodes, _ = _ends(builder, nfeat, edges)
    sums = builder.aggregate(graph, edge=efeat, reduce=SUMS[block.aggregation])
    new = builder.apply(block.node_mlp.model, builder.concat([sums, nodes], 1))
    return efeat, builder.add(new, nodes)


@lowering(MeshGraphNetProcessor)
def _processor(
    builder: Builder,
    network: MeshGraphNetProcessor,
    node_features: Ref,
    edge_features: Ref,
    graph: object,
) -> Ref:
    both: object = edge_features, node_features
    for block in network.processor_layers:
        assert isinstance(both, tuple)
        both = builder.call(block, *both, graph)
    assert isinstance(both, tuple)
    found = both[1]
    assert isinstance(found, Ref)
    return found
