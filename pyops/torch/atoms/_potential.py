"""Energies of a model with their derivatives: forces and stress."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .._call import is_tracing

if TYPE_CHECKING:
    from collections.abc import Callable


class Potential(NamedTuple):
    """Energies, forces and stresses that `energy_forces_stress` returns."""

    energy: Tensor
    forces: Tensor
    stress: Tensor | None


def energy_forces_stress(
    model: Callable[..., Tensor],
    z: Tensor,
    pos: Tensor,
    batch: Tensor | None = None,
    cell: Tensor | None = None,
    pbc: Tensor | None = None,
) -> Potential:
    """Evaluate a model and the derivatives of its energies by positions and cells.

    If gradients are enabled, the results can be differentiated, by the parameters of the model for
    example; in `torch.no_grad` they are constants and their graph is freed.

    Parameters
    ----------
    model : callable
        Called as ``model(z, pos, batch, cell=cell, pbc=pbc)``, without the last two if they are
        None; returns one energy for each graph, of shape (num_graphs,) or (num_graphs, 1).
    z : Tensor of int64, shape (num_atoms,)
        Atomic numbers.
    pos : Tensor, shape (num_atoms, 3)
        Positions. Inside `torch.compile` it has to require gradients, as has `cell`.
    batch : Tensor of int64, shape (num_atoms,), optional
        The graph of each atom; one graph if not given.
    cell : Tensor, shape (3, 3) or (num_graphs, 3, 3), optional
        Vectors of the cell as rows; zero for a molecule in free space.
    pbc : Tensor of bool, shape (3,) or (num_graphs, 3), optional
        Along which cell vectors space is periodic.

    Returns
    -------
    energy : Tensor, shape (num_graphs,)
        Energies of the graphs.
    forces : Tensor, shape (num_atoms, 3)
        Minus the derivative by the positions.
    stress : Tensor, shape (num_graphs, 3, 3), or None without a cell
        Derivative by a strain of positions and cell over the volume of the cell, in the sign of
        ASE; NaN for graphs whose cell has no volume.

    Raises
    ------
    TypeError, ValueError
        If the model returns anything else, or in a periodic cell energies that do not depend on it.
    """
    differentiable = torch.is_grad_enabled()
    if batch is None:
        if cell is not None and cell.dim() == 3 and len(cell) != 1:
            raise ValueError(
                "energy_forces_stress: cell: expected that of one graph without a batch, "
                f"got shape {tuple(cell.shape)}"
            )
        batch = torch.zeros_like(z)
    with torch.enable_grad():
        pos = _with_gradient(pos)
        cell = None if cell is None else _with_gradient(_one_for_each(cell.to(pos.dtype), batch))
        given = {name: t for name, t in (("cell", cell), ("pbc", pbc)) if t is not None}
        energy = _checked(model(z, pos, batch, **given), cell).to(pos.dtype)
        leaves = [pos] if cell is None else [pos, cell]
        by_pos, *by_cell = torch.autograd.grad(
            energy.sum(), leaves, create_graph=differentiable, allow_unused=True
        )
    if by_pos is None:
        by_pos = torch.zeros_like(pos)
    stress = None
    if cell is not None:
        stress = _stress(pos, by_pos, cell, _of_cell(by_cell[0], cell, pbc), batch)
    return Potential(energy if differentiable else energy.detach(), -by_pos, stress)


def _with_gradient(leaf: Tensor) -> Tensor:
    """Return a tensor for partial derivatives: others may be computed from `leaf`."""
    return leaf.view_as(leaf) if leaf.requires_grad else leaf.detach().requires_grad_()


def _one_for_each(cell: Tensor, batch: Tensor) -> Tensor:
    """Return a cell for each graph."""
    if cell.dim() == 3:
        return cell
    return cell.expand(1 + int(batch.max()) if len(batch) else 1, *cell.shape)


def _checked(energy: object, cell: Tensor | None) -> Tensor:
    """Return energies of shape (num_graphs,)."""
    label = "energy_forces_stress: model"
    if not isinstance(energy, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(energy).__name__}")
    shape = tuple(energy.shape)
    if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)):
        raise ValueError(f"{label}: expected one energy for each graph, got shape {shape}")
    if cell is not None and not is_tracing() and len(energy) != len(cell):
        raise ValueError(f"{label}: expected {len(cell)} energies, one for each cell, got {shape}")
    if not energy.requires_grad:
        raise ValueError(f"{label}: expected energies that depend on the positions, got others")
    return energy if energy.dim() == 1 else energy.squeeze(1)


def _of_cell(gradient: Tensor | None, cell: Tensor, pbc: Tensor | None) -> Tensor:
    """Return the derivative by the cell, 0 without periodic directions."""
    if gradient is not None:
        return gradient
    if pbc is None or bool(pbc.any()):
        raise ValueError(
            "energy_forces_stress: model: expected energies that depend on the cell, got others"
        )
    return torch.zeros_like(cell)


def _stress(pos: Tensor, by_pos: Tensor, cell: Tensor, by_cell: Tensor, batch: Tensor) -> Tensor:
    """Return the derivative by a symmetric strain of positions and cell, over the volume.

    Sums are elementwise: autocast would round matrix products to half precision.
    """
    of_atoms = pos.unsqueeze(2) * by_pos.unsqueeze(1)
    of_cells = (cell.unsqueeze(3) * by_cell.unsqueeze(2)).sum(1)
    by_strain = of_cells.index_add(0, batch, of_atoms)
    by_strain = (by_strain + by_strain.transpose(1, 2)) / 2
    first, second, third = cell.unbind(1)
    volume = (first * torch.linalg.cross(second, third)).sum(1).abs()[:, None, None]
    has_volume = volume > 0  # the quotient is finite everywhere, so that no gradient is NaN
    quotient = by_strain / torch.where(has_volume, volume, 1)
    return torch.where(has_volume, quotient, torch.nan)
