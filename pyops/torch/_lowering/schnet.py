"""SchNet and its layers as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..nn.gaussian_smearing import GaussianSmearing
from ..nn.interaction_block import InteractionBlock
from ..nn.schnet import SchNet
from ..nn.shifted_softplus import ShiftedSoftplus
from .builder import Builder, Example, Ref, UnsupportedError, lowering
from .molecules import neighbours, norms

if TYPE_CHECKING:
    from torch import Tensor


@lowering(SchNet)
def _schnet(
    builder: Builder,
    model: SchNet,
    z: Ref,
    pos: Ref,
    batch: Ref | None = None,
    cell: Ref | Example | None = None,
    pbc: Ref | Example | None = None,
) -> Ref:
    if model.interaction_graph is not None:
        raise UnsupportedError("interaction_graph: expected None, whose search is that of pyops")
    near = neighbours(builder, model, model.cutoff, pos, batch, cell, pbc)
    lengths = norms(builder, near.vectors)
    features = builder.apply(model.distance_expansion, lengths)
    h = builder.apply(model.embedding, z)
    for interaction in model.interactions:
        h = builder.add(h, builder.apply(interaction, h, near.graph, lengths, features))
    h = builder.linear(model.lin2, builder.apply(model.act, builder.linear(model.lin1, h)))
    if model.dipole:
        h = builder.multiply(h, _displacements(builder, model.atomic_mass, z, pos, batch))
    elif model.mean is not None and model.std is not None:
        h = builder.add(builder.multiply(h, model.std), model.mean)
    if not model.dipole and model.atomref is not None:
        h = builder.add(h, builder.apply(model.atomref, z))
    out = _by_molecule(builder, h, batch)
    if model.readout == "mean":
        counts = _by_molecule(builder, builder.column(builder.full(h, 1.0)), batch)
        out = builder.divide(out, builder.binary("maximum", counts, 1.0))
    if model.dipole:
        out = builder.column(norms(builder, out))
    return out if model.scale is None else builder.multiply(out, model.scale)


def _by_molecule(builder: Builder, x: Ref, batch: Ref | None) -> Ref:
    """Return the sum over the atoms of each molecule."""
    if batch is None:
        return builder.unary("sum", x, axis=0, keepdims=True)
    return builder.step("scatter_sum", {"x": x, "index": batch})


def _displacements(builder: Builder, masses: Tensor, z: Ref, pos: Ref, batch: Ref | None) -> Ref:
    """Return the positions relative to the centre of mass of their molecule."""
    table = builder.column(builder.parameter(masses))
    mass = builder.step("gather", {"x": table, "index": z})
    total = _by_molecule(builder, mass, batch)
    centre = builder.divide(_by_molecule(builder, builder.multiply(mass, pos), batch), total)
    if batch is not None:
        centre = builder.step("gather", {"x": centre, "index": batch})
    return builder.binary("subtract", pos, centre)


@lowering(InteractionBlock)
def _interaction(
    builder: Builder,
    block: InteractionBlock,
    x: Ref,
    edge_index: Ref,
    edge_weight: Ref,
    edge_attr: Ref,
) -> Ref:
    h = builder.apply(block.conv, x, edge_index, edge_weight, edge_attr)
    return builder.linear(block.lin, builder.apply(block.act, h))


@lowering(GaussianSmearing)
def _gaussians(builder: Builder, layer: GaussianSmearing, dist: Ref) -> Ref:
    offsets = builder.parameter(layer.offset)
    differences = builder.binary("subtract", builder.column(builder.flat(dist)), offsets)
    squares = builder.multiply(differences, differences)
    return builder.unary("exp", builder.multiply(squares, float(layer.coeff)))


@lowering(ShiftedSoftplus)
def _shifted_softplus(builder: Builder, layer: ShiftedSoftplus, x: Ref) -> Ref:
    return builder.add(builder.unary("softplus", x), -float(layer.shift))
