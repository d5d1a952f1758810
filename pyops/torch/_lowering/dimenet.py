"""DimeNet++ and its layers as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..nn._linear import is_linear
from ..nn.bessel_basis_layer import BesselBasisLayer
from ..nn.dimenet_plus_plus import DimeNetPlusPlus
from ..nn.embedding_block import EmbeddingBlock
from ..nn.interaction_pp_block import InteractionPPBlock
from ..nn.output_pp_block import OutputPPBlock
from ..nn.residual_layer import ResidualLayer
from ..nn.spherical_basis_layer import SphericalBasisLayer
from .builder import Builder, Example, Ref, UnsupportedError, lowering
from .molecules import Neighbours, neighbours, norms

if TYPE_CHECKING:
    from torch.nn import Linear

    from ...models._calls import Scalar


@lowering(DimeNetPlusPlus)
def _dimenet(
    builder: Builder,
    model: DimeNetPlusPlus,
    z: Ref,
    pos: Ref,
    batch: Ref | None = None,
    cell: Ref | Example | None = None,
    pbc: Ref | Example | None = None,
) -> Ref:
    near = neighbours(builder, model, model.cutoff, pos, batch, cell, pbc)
    graph, vectors = near.graph, near.vectors
    distances = norms(builder, vectors)
    rbf = _bessel(builder, model.rbf, distances)
    radial = _radial(builder, model.sbf, distances)
    ends = (builder.step(end, graph=graph) for end in ("destinations", "sources"))
    x = _embedding(builder, model.emb, z, rbf, *ends)
    first, *others = model.output_blocks
    atoms = _output_on_graph(builder, first, x, rbf, graph)
    for interaction, output in zip(model.interaction_blocks, others, strict=True):
        x = _interaction_on_graph(builder, interaction, x, rbf, radial, near)
        atoms = builder.add(atoms, _output_on_graph(builder, output, x, rbf, graph))
    if batch is None:
        return builder.unary("sum", atoms, axis=0)
    return builder.step("scatter_sum", {"x": atoms, "index": batch})


@lowering(BesselBasisLayer)
def _bessel(builder: Builder, layer: BesselBasisLayer, dist: Ref) -> Ref:
    inputs = {
        "distances": builder.divide(builder.flat(dist), float(layer.cutoff)),
        "frequencies": builder.parameter(layer.freq),
    }
    return builder.step("radial_basis", inputs, {"exponent": layer.exponent})


def _radial(builder: Builder, layer: SphericalBasisLayer, dist: Ref) -> Ref:
    options: dict[str, Scalar] = {
        "num_spherical": layer.num_spherical,
        "num_radial": layer.num_radial,
        "exponent": layer.exponent,
    }
    distances = builder.divide(dist, float(layer.cutoff))
    return builder.step("spherical_basis", {"distances": distances}, options)


@lowering(SphericalBasisLayer)
def _spherical(
    builder: Builder, layer: SphericalBasisLayer, dist: Ref, angle: Ref, idx_kj: Ref
) -> Ref:
    c = builder.unary("cos", angle)
    legendre = [builder.full(c, 1.0), c]
    for n in range(2, layer.num_spherical):
        first = builder.multiply(builder.multiply(c, legendre[-1]), (2 * n - 1) / n)
        second = builder.multiply(legendre[-2], (n - 1) / n)
        legendre.append(builder.binary("subtract", first, second))
    radial = builder.step("gather", {"x": _radial(builder, layer, dist), "index": idx_kj})
    parts = []
    for degree, values in enumerate(legendre[: layer.num_spherical]):
        norm = ((2 * degree + 1) / (4 * torch.pi)) ** 0.5
        start = degree * layer.num_radial
        columns = builder.columns(radial, start, start + layer.num_radial)
        parts.append(builder.multiply(columns, builder.column(builder.multiply(values, norm))))
    return builder.concat(parts, 1)


@lowering(EmbeddingBlock)
def _embedding(builder: Builder, block: EmbeddingBlock, x: Ref, rbf: Ref, i: Ref, j: Ref) -> Ref:
    atoms = builder.linear(block.emb, x)
    ends = [builder.step("gather", {"x": atoms, "index": index}) for index in (i, j)]
    radial = builder.apply(block.act, builder.linear(block.lin_rbf, rbf))
    if not is_linear(block.lin):
        return builder.apply(
            block.act, builder.linear(block.lin, builder.concat([*ends, radial], 1))
        )
    weight = builder.parameter(block.lin.weight)
    width = weight.columns // 3
    own, other, last = (
        builder.columns(weight, place * width, (place + 1) * width) for place in range(3)
    )
    ends = [
        builder.step("gather", {"x": builder.product(atoms, part), "index": index})
        for part, index in ((own, i), (other, j))
    ]
    total = builder.product(radial, last, builder.tensor(block.lin.bias))
    return builder.apply(block.act, builder.add(*ends, total))


@lowering(ResidualLayer)
def _residual(builder: Builder, layer: ResidualLayer, x: Ref) -> Ref:
    h = builder.apply(layer.act, builder.linear(layer.lin1, x))
    return builder.add(x, builder.apply(layer.act, builder.linear(layer.lin2, h)))


def _product_of_two(builder: Builder, first: Linear, second: Linear, x: Ref) -> Ref:
    """Return the result of two layers, of which the products with each other come first."""
    if not (is_linear(first, biased=False) and is_linear(second, biased=False)):
        return builder.linear(second, builder.linear(first, x))
    weights = (builder.parameter(layer.weight) for layer in (second, first))
    return builder.product(x, builder.matmul(*weights))


def _messages(builder: Builder, block: InteractionPPBlock, x: Ref, rbf: Ref) -> Ref:
    scale = _product_of_two(builder, block.lin_rbf1, block.lin_rbf2, rbf)
    h = builder.apply(block.act, builder.linear(block.lin_kj, x))
    return builder.apply(block.act, builder.linear(block.lin_down, builder.multiply(h, scale)))


def _update(builder: Builder, block: InteractionPPBlock, x: Ref, sums: Ref) -> Ref:
    parts = ((block.lin_ji, x), (block.lin_up, sums))
    h = builder.add(*(builder.apply(block.act, builder.linear(*part)) for part in parts))
    for layer in block.layers_before_skip:
        h = builder.apply(layer, h)
    h = builder.add(builder.apply(block.act, builder.linear(block.lin, h)), x)
    for layer in block.layers_after_skip:
        h = builder.apply(layer, h)
    return h


@lowering(InteractionPPBlock)
def _interaction(
    builder: Builder,
    block: InteractionPPBlock,
    x: Ref,
    rbf: Ref,
    sbf: Ref,
    idx_kj: Ref,
    idx_ji: Ref,
) -> Ref:
    inputs = {"src": idx_kj, "dst": idx_ji, "num_src": x, "num_dst": x}
    graph = builder.step("graph_of", inputs)
    factors = builder.linear(block.lin_sbf2, builder.linear(block.lin_sbf1, sbf))
    messages = _messages(builder, block, x, rbf)
    gathered = builder.step("gather", {"x": messages, "index": idx_kj})
    sums = builder.aggregate(graph, edge=builder.multiply(gathered, factors))
    return _update(builder, block, x, sums)


def _interaction_on_graph(
    builder: Builder,
    block: InteractionPPBlock,
    x: Ref,
    rbf: Ref,
    radial: Ref,
    near: Neighbours,
) -> Ref:
    weights = []
    for layer in block.lin_sbf1, block.lin_sbf2:
        if not is_linear(layer, biased=False):
            raise UnsupportedError("lin_sbf1, lin_sbf2: expected linear layers without bias")
        weights.append(builder.parameter(layer.weight))
    inputs = {
        "vectors": near.vectors,
        "radial": radial,
        "embedding": _messages(builder, block, x, rbf),
        "weights": builder.concat([builder.transpose(weights[0]), weights[1]], 0),
        "reverse": near.reverse,
    }
    options: dict[str, Scalar] = {"num_spherical": block.num_spherical}
    if near.reverse is not None:
        options["exclude"] = "image"
    sums = builder.step("dimenet_aggregate", inputs, options, near.graph)
    return _update(builder, block, x, sums)


@lowering(OutputPPBlock)
def _output(
    builder: Builder, block: OutputPPBlock, x: Ref, rbf: Ref, i: Ref, num_nodes: object = None
) -> Ref:
    if num_nodes is not None:
        raise UnsupportedError(f"num_nodes: expected None, got {num_nodes!r:.60}")
    messages = builder.multiply(builder.linear(block.lin_rbf, rbf), x)
    sums = builder.step("scatter_sum", {"x": messages, "index": i})
    return _on_atoms(builder, block, sums)


def _output_on_graph(builder: Builder, block: OutputPPBlock, x: Ref, rbf: Ref, graph: Ref) -> Ref:
    messages = builder.multiply(builder.linear(block.lin_rbf, rbf), x)
    return _on_atoms(builder, block, builder.aggregate(graph, edge=messages))


def _on_atoms(builder: Builder, block: OutputPPBlock, sums: Ref) -> Ref:
    y = builder.linear(block.lin_up, sums)
    for layer in block.lins:
        y = builder.apply(block.act, builder.linear(layer, y))
    return builder.linear(block.lin, y)
