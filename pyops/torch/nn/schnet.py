"""Replacement for PyTorch Geometric's `SchNet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor
from torch.nn import Embedding, Linear

from .._call import HALVES, is_tracing
from .._host import without_subclass
from ._dimenet import Blocks
from ._edges.radius import neighbours
from ._functions import scatter
from ._molecules import check_atoms, sum_by_molecule
from .gaussian_smearing import GaussianSmearing
from .interaction_block import InteractionBlock, reset
from .shifted_softplus import ShiftedSoftplus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._edges.edge_index import EdgeIndex

    Edges: TypeAlias = tuple[EdgeIndex, Tensor]
    """Edges and their lengths."""

InteractionGraph: TypeAlias = "Callable[[Tensor, Tensor], Edges]"
READOUTS = "add", "sum", "mean"


class SchNet(torch.nn.Module):
    """SchNet from positions, as `torch_geometric.nn.models.SchNet`.

    Searches neighbours itself, in periodic cells too. Outputs are twice differentiable, so forces
    ``-torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]`` can be part of a loss, as can
    stress: see `pyops.torch.atoms.energy_forces_stress`. The same seed gives the same initial
    weights as the original. Differences:

    * all neighbours within the cutoff are used; if an atom has more than `max_num_neighbors`, a
      ValueError is raised (the original drops some of them, in an unspecified order);
    * pretrained weights are not downloaded: load them in the original and pass the `state_dict`.

    `torch.compile` captures one graph for molecules of any size.

    Parameters
    ----------
    hidden_channels : int
        Width of the features of atoms.
    num_filters : int
        Width of the filters.
    num_interactions : int
        Number of interaction blocks.
    num_gaussians : int
        Number of Gaussians of each distance.
    cutoff : float
        Distance up to which atoms are neighbours.
    interaction_graph : callable, optional
        Replaces the search: returns ``(edge_index, edge_weight)``, edges and their lengths, of
        positions and batch.
    max_num_neighbors : int or None
        Maximum number of neighbours of an atom; None for any number.
    readout : {"add", "sum", "mean"}
        How the outputs of the atoms of a molecule are joined.
    dipole : bool
        Whether the output is the magnitude of the dipole moment, of molecules in free space.
    mean, std : float, optional
        The outputs of atoms are multiplied by `std` and `mean` is added, if both are given.
    atomref : tensor, shape (100, 1), optional
        Value of each element, added to the outputs of atoms.

    References
    ----------
    Schuett et al., SchNet: a continuous-filter convolutional neural network for modeling quantum
    interactions, arXiv:1706.08566.
    """

    atomic_mass: Tensor
    initial_atomref: Tensor | None

    def __init__(
        self,
        hidden_channels: int = 128,
        num_filters: int = 128,
        num_interactions: int = 6,
        num_gaussians: int = 50,
        cutoff: float = 10.0,
        interaction_graph: InteractionGraph | None = None,
        max_num_neighbors: int | None = 32,
        readout: str = "add",
        dipole: bool = False,
        mean: float | None = None,
        std: float | None = None,
        atomref: Tensor | None = None,
    ) -> None:
        super().__init__()
        if readout not in READOUTS:
            raise ValueError(f"SchNet: readout: expected one of {READOUTS}, got {readout!r}")
        self.hidden_channels = hidden_channels
        self.num_filters = num_filters
        self.num_interactions = num_interactions
        self.num_gaussians = num_gaussians
        self.cutoff = cutoff
        self.interaction_graph = interaction_graph
        self.max_num_neighbors = max_num_neighbors
        self.readout = "sum" if dipole else readout
        self.dipole = dipole
        self.mean = mean
        self.std = std
        self.scale: float | None = None
        if dipole:
            self.register_buffer("atomic_mass", _atomic_masses())
        self.embedding = Embedding(100, hidden_channels, padding_idx=0)
        self.distance_expansion = GaussianSmearing(0.0, cutoff, num_gaussians)
        self.interactions = Blocks(
            [
                InteractionBlock(hidden_channels, num_gaussians, num_filters, cutoff)
                for _ in range(num_interactions)
            ]
        )
        self.lin1 = Linear(hidden_channels, hidden_channels // 2)
        self.act = ShiftedSoftplus()
        self.lin2 = Linear(hidden_channels // 2, 1)
        self.register_buffer("initial_atomref", atomref)
        self.atomref = None if atomref is None else Embedding(100, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all weights."""
        self.embedding.reset_parameters()
        for interaction in self.interactions:
            interaction.reset_parameters()
        reset(self.lin1)
        reset(self.lin2)
        if self.atomref is not None and self.initial_atomref is not None:
            self.atomref.weight.data.copy_(self.initial_atomref)

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
            The molecule of each atom; one molecule if not given.
        cell : tensor, shape (3, 3) or (num_molecules, 3, 3), optional
            Vectors of the periodic cell as rows; zero for a molecule in free space. Outputs have
            derivatives by it.
        pbc : tensor of bool, shape (3,) or (num_molecules, 3), optional
            Along which cell vectors space is periodic; with a cell, by default along all.

        Returns
        -------
        tensor, shape (num_molecules, 1)
        """
        z = without_subclass(z)
        batch, cell, pbc = map(without_subclass, (batch, cell, pbc))
        check_atoms("SchNet", z, pos, batch, cell, pbc, self.lin1.weight)
        edges, lengths, counts = self._edges(pos, batch, cell, pbc)
        batch = torch.zeros_like(z) if batch is None else batch
        h = self.embedding(z)
        features = self.distance_expansion(lengths)
        for interaction in self.interactions:
            h = h + interaction(h, edges, lengths, features)
        h = self.lin2(self.act(self.lin1(h)))
        half = h.dtype if h.dtype in HALVES else None
        if half is not None:
            h = h.float()  # sums over atoms in float32
        if self.dipole:
            h = h * self._displacements(z, pos, batch, counts)
        elif self.mean is not None and self.std is not None:
            h = h * self.std + self.mean
        if not self.dipole and self.atomref is not None:
            h = h + self.atomref(z)
        out = sum_by_molecule(h, batch, counts)
        if self.readout == "mean":
            out = out / counts.clamp(min=1).unsqueeze(1)
        if self.dipole:
            out = torch.norm(out, dim=-1, keepdim=True)
        out = out if self.scale is None else self.scale * out
        if half is None or torch.is_autocast_enabled(h.device.type):
            return out
        return out.to(half)

    def _edges(
        self, pos: Tensor, batch: Tensor | None, cell: Tensor | None, pbc: Tensor | None
    ) -> tuple[EdgeIndex, Tensor, Tensor]:
        """Return edges, their lengths and the number of atoms of each molecule."""
        if cell is not None and self.dipole:
            raise ValueError("SchNet: cell: expected None for a model of dipole moments")
        if self.interaction_graph is not None:
            if cell is not None:
                raise ValueError("SchNet: cell: expected None beside an interaction_graph")
            batch = pos.new_zeros(len(pos), dtype=torch.int64) if batch is None else batch
            ones = torch.ones_like(batch)
            return *self.interaction_graph(pos, batch), scatter(ones, batch)
        near = neighbours("SchNet", pos, batch, self.cutoff, self.max_num_neighbors, cell, pbc)
        lengths = near.vectors(pos, cell, batch).norm(dim=-1)
        edges = torch.stack([near.src, near.dst]) if is_tracing() else near.graph
        return edges, lengths, near.counts

    def _displacements(self, z: Tensor, pos: Tensor, batch: Tensor, counts: Tensor) -> Tensor:
        """Return the positions relative to the centre of mass of their molecule."""
        mass = self.atomic_mass[z].view(-1, 1)
        total = sum_by_molecule(mass, batch, counts)
        centre = sum_by_molecule(mass * pos, batch, counts) / total
        return pos - centre.index_select(0, batch)

    def __repr__(self) -> str:
        """Return the text of the original."""
        return (
            f"{type(self).__name__}(hidden_channels={self.hidden_channels}, "
            f"num_filters={self.num_filters}, num_interactions={self.num_interactions}, "
            f"num_gaussians={self.num_gaussians}, cutoff={self.cutoff})"
        )


def _atomic_masses() -> Tensor:
    try:
        from ase.data import atomic_masses
    except ImportError as error:
        raise ImportError("SchNet: dipole: atomic masses are those of the package ase") from error
    return torch.from_numpy(atomic_masses)
