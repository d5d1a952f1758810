"""Replacement for PyTorch Geometric's `DimeNetPlusPlus`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Linear

from .._host import without_subclass
from ._dimenet import Activation, Blocks, activation, glorot_orthogonal, reset
from ._edges.radius import neighbours
from ._molecules import check_atoms, sum_by_molecule
from .bessel_basis_layer import BesselBasisLayer
from .embedding_block import EmbeddingBlock
from .interaction_pp_block import InteractionPPBlock
from .output_pp_block import OutputPPBlock
from .residual_layer import ResidualLayer
from .spherical_basis_layer import SphericalBasisLayer


class DimeNetPlusPlus(torch.nn.Module):
    """DimeNet++ from positions, as `torch_geometric.nn.models.DimeNetPlusPlus`.

    Searches neighbours itself, in periodic cells too, and materializes no list of triplets.
    Energies are twice differentiable, so forces
    ``-torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]`` can be part of a loss, as can
    stress: see `pyops.torch.atoms.energy_forces_stress`. The same seed gives the same initial
    weights as the original. Differences:

    * the spherical basis is exact, see `SphericalBasisLayer`;
    * all neighbours within the cutoff are used; if an atom has more than `max_num_neighbors`, a
      ValueError is raised (the original drops some of them, in an unspecified order);
    * derivatives are finite if three atoms are collinear. If atoms coincide they are NaN, as in the
      original;
    * pretrained weights are not downloaded: load them in the original and pass the `state_dict`.

    `torch.compile` captures one graph for molecules of any size; also of a training step on forces,
    which contains a gradient, if ``torch._dynamo.config.trace_autograd_ops = True``.

    Parameters
    ----------
    hidden_channels : int
        Width of the messages.
    out_channels : int
        Number of outputs of each molecule.
    num_blocks : int
        Number of interactions.
    int_emb_size, basis_emb_size : int
        Widths in the interactions, see `InteractionPPBlock`.
    out_emb_channels : int
        Width of the layers on the atoms.
    num_spherical : int
        Number of degrees, from 2 to 16.
    num_radial : int
        Number of radial functions.
    cutoff : float
        Distance up to which atoms are neighbours.
    max_num_neighbors : int or None
        Maximum number of neighbours of an atom; None for any number.
    envelope_exponent : int
        Exponent of the envelope, from 1 to 32.
    num_before_skip, num_after_skip : int
        Numbers of residual layers in the interactions.
    num_output_layers : int
        Number of layers on the atoms.
    act : str or callable
        Activation.
    output_initializer : {"zeros", "glorot_orthogonal"}
        Initialization of the last layer of each output block. With the default "zeros", outputs
        and forces are 0 until the model is trained.
    """

    def __init__(
        self,
        hidden_channels: int,
        out_channels: int,
        num_blocks: int,
        int_emb_size: int,
        basis_emb_size: int,
        out_emb_channels: int,
        num_spherical: int,
        num_radial: int,
        cutoff: float = 5.0,
        max_num_neighbors: int | None = 32,
        envelope_exponent: int = 5,
        num_before_skip: int = 1,
        num_after_skip: int = 2,
        num_output_layers: int = 3,
        act: str | Activation = "swish",
        output_initializer: str = "zeros",
    ) -> None:
        super().__init__()
        if num_spherical < 2:
            raise ValueError("'num_spherical' should be greater than 1")
        act = activation(act)
        self.cutoff = cutoff
        self.max_num_neighbors = max_num_neighbors
        self.num_blocks = num_blocks
        self.rbf = BesselBasisLayer(num_radial, cutoff, envelope_exponent)
        self.sbf = SphericalBasisLayer(num_spherical, num_radial, cutoff, envelope_exponent)
        self.emb = EmbeddingBlock(num_radial, hidden_channels, act)
        _advance_generator(
            hidden_channels,
            out_channels,
            num_blocks,
            num_spherical * num_radial,
            num_radial,
            num_before_skip,
            num_after_skip,
            num_output_layers,
            act,
            output_initializer,
        )
        self.output_blocks = Blocks(
            [
                OutputPPBlock(
                    num_radial,
                    hidden_channels,
                    out_emb_channels,
                    out_channels,
                    num_output_layers,
                    act,
                    output_initializer,
                )
                for _ in range(num_blocks + 1)
            ]
        )
        self.interaction_blocks = Blocks(
            [
                InteractionPPBlock(
                    hidden_channels,
                    int_emb_size,
                    basis_emb_size,
                    num_spherical,
                    num_radial,
                    num_before_skip,
                    num_after_skip,
                    act,
                )
                for _ in range(num_blocks)
            ]
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all weights."""
        for part in self.rbf, self.emb, *self.output_blocks, *self.interaction_blocks:
            part.reset_parameters()

    def forward(
        self,
        z: Tensor,
        pos: Tensor,
        batch: Tensor | None = None,
        cell: Tensor | None = None,
        pbc: Tensor | None = None,
    ) -> Tensor:
        """Return the outputs of the molecules or crystals.

        Parameters
        ----------
        z : tensor of int64, shape (num_atoms,)
            Atomic numbers.
        pos : tensor, shape (num_atoms, 3)
            Positions.
        batch : tensor of int64, shape (num_atoms,), optional
            The molecule of each atom.
        cell : tensor, shape (3, 3) or (num_molecules, 3, 3), optional
            Vectors of the periodic cell as rows; zero for a molecule in free space. Outputs have
            derivatives by it.
        pbc : tensor of bool, shape (3,) or (num_molecules, 3), optional
            Along which cell vectors space is periodic; with a cell, by default along all.

        Returns
        -------
        tensor, shape (out_channels,) or, with a batch, (num_molecules, out_channels)
        """
        parameter = getattr(self.rbf, "freq", pos)
        z = without_subclass(z)
        batch, cell, pbc = map(without_subclass, (batch, cell, pbc))
        check_atoms("DimeNetPlusPlus", z, pos, batch, cell, pbc, parameter)
        near = neighbours(
            "DimeNetPlusPlus", pos, batch, self.cutoff, self.max_num_neighbors, cell, pbc
        )
        vectors = near.vectors(pos, cell, batch)
        dist = vectors.pow(2).sum(dim=-1).sqrt()
        rbf, radial = self.rbf(dist), self.sbf.radial(dist)
        x = self.emb(z, rbf, near.dst, near.src)
        first, *others = self.output_blocks
        atoms = first.on_graph(x, rbf, near.graph)
        for interaction, output in zip(self.interaction_blocks, others, strict=True):
            x = interaction.on_graph(x, rbf, radial, vectors, near.graph, near.reverse)
            atoms = atoms + output.on_graph(x, rbf, near.graph)
        return atoms.sum(dim=0) if batch is None else sum_by_molecule(atoms, batch, near.counts)


def _advance_generator(
    hidden_channels: int,
    out_channels: int,
    num_blocks: int,
    basis: int,
    num_radial: int,
    num_before_skip: int,
    num_after_skip: int,
    num_output_layers: int,
    act: Activation,
    output_initializer: str,
) -> None:
    """Advance the random generator as the original does, which draws DimeNet's blocks first."""
    width = hidden_channels
    for _ in range(num_blocks + 1):
        layers = [Linear(num_radial, width, bias=False)]
        layers += [Linear(width, width) for _ in range(num_output_layers)]
        last = Linear(width, out_channels, bias=False)
        for layer in layers:
            reset(layer)
        if output_initializer == "glorot_orthogonal":
            glorot_orthogonal(last.weight)
    for _ in range(num_blocks):
        layers = [Linear(num_radial, width, bias=False), Linear(basis, 1, bias=False)]
        layers += [Linear(width, width), Linear(width, width)]
        before = [ResidualLayer(width, act) for _ in range(num_before_skip)]
        last = Linear(width, width)
        after = [ResidualLayer(width, act) for _ in range(num_after_skip)]
        for layer in layers:
            reset(layer)
        torch.empty(width, 1, width).normal_(std=2 / width)
        for residual in before:
            residual.reset_parameters()
        reset(last)
        for residual in after:
            residual.reset_parameters()
