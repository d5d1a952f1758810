"""Molecules and crystals side by side as tensors, with their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


class AtomsBatch(NamedTuple):
    """Molecules and crystals side by side, with their labels; labels that are missing are NaN.

    The first five fields are the arguments of a model and of `energy_forces_stress`.
    """

    z: Tensor
    pos: Tensor
    batch: Tensor
    cell: Tensor
    pbc: Tensor
    energy: Tensor
    forces: Tensor
    stress: Tensor

    @property
    def counts(self) -> Tensor:
        """Number of atoms of each graph."""
        return torch.bincount(self.batch, minlength=len(self.energy))

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> AtomsBatch:
        """Return the batch on a device, its floating-point numbers in a type.

        Parameters
        ----------
        device : torch.device or str, optional
        dtype : torch.dtype, optional

        Returns
        -------
        AtomsBatch
        """
        return AtomsBatch(*(t.to(device, dtype if t.is_floating_point() else None) for t in self))


def collate(examples: Sequence[AtomsBatch]) -> AtomsBatch:
    """Join batches to one, as ``collate_fn`` of `torch.utils.data.DataLoader`.

    Parameters
    ----------
    examples : sequence of AtomsBatch
        At least one, such as items of an `AtomsDataset`.

    Returns
    -------
    AtomsBatch
        The graphs in the order of the examples.
    """
    if not examples:
        raise ValueError("collate: examples: expected at least one, got none")
    parts = {name: torch.cat([getattr(e, name) for e in examples]) for name in AtomsBatch._fields}
    sizes = torch.tensor([len(example.energy) for example in examples])
    atoms = torch.tensor([len(example.z) for example in examples])
    first = (sizes.cumsum(0) - sizes).repeat_interleave(atoms)
    parts["batch"] = parts["batch"] + first.to(parts["batch"])
    return AtomsBatch(**parts)
