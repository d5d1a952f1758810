"""Calculators of ASE that run models of `pyops.torch`, or any other model of energies."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import ase.calculators.calculator
import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols

from .torch.atoms import energy_forces_stress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ase import Atoms
    from torch import Tensor

    from ._call.types import Array

Model = TypeVar("Model", bound="Callable[..., Tensor]")
VOIGT = (0, 1, 2, 1, 0, 0), (0, 1, 2, 2, 2, 1)
"""Rows and columns of the six elements of the stress, in the order of ASE."""


class Calculator(ase.calculators.calculator.Calculator):
    """Calculator of ASE for a model of energies, with forces and stress by differentiation.

    The properties are energy, free_energy, forces and, if the cell has a volume, stress, in the
    units and signs of ASE: eV, eV/Å and eV/Å³. One evaluation yields all of them.

    Parameters
    ----------
    model : torch.nn.Module or callable
        Called as ``model(z, pos, batch, cell=cell, pbc=pbc)``, for atoms without cell as
        ``model(z, pos, batch)``; returns one energy in eV, of positions in Å. A module is copied,
        in the mode for evaluation.
    atom_energies : mapping, optional
        Energy in eV of each element by symbol or atomic number, added for each atom, such as
        `pyops.torch.atoms.AtomsDataset.atom_energies` returns. It has to have every element that
        occurs.
    dtype : torch.dtype, optional
        Precision of the evaluation, torch.float32 or torch.float64; that of the model if not given.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import ase.build, torch
    >>> from pyops.ase import Calculator
    >>> from pyops.torch.nn import SchNet
    >>> atoms = ase.build.bulk("Cu")
    >>> atoms.calc = Calculator(SchNet(8, 8, 1, cutoff=4.0), dtype=torch.float64)
    >>> atoms.get_forces().shape, atoms.get_stress().shape
    ((1, 3), (6,))
    """

    implemented_properties = ("energy", "free_energy", "forces", "stress")
    ignored_changes = frozenset({"initial_charges", "initial_magmoms"})

    def __init__(
        self,
        model: torch.nn.Module | Callable[..., Tensor],
        *,
        atom_energies: Mapping[str, float] | Mapping[int, float] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        caller = "pyops.ase.Calculator"
        if not callable(model):
            raise TypeError(f"{caller}: model: expected a callable, got {type(model).__name__}")
        if dtype not in (None, torch.float32, torch.float64):
            raise ValueError(f"{caller}: dtype: expected float32 or float64, got {dtype}")
        found = _floating(model)
        own = torch.float64 if found is None else found.dtype
        self._dtype = dtype or (own if own in (torch.float32, torch.float64) else torch.float32)
        self._device = torch.device("cpu") if found is None else found.device
        self._model = _for_evaluation(model, self._dtype)
        self._atom_energies = _by_number(f"{caller}: atom_energies", atom_energies)

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = ase.calculators.calculator.all_changes,
    ) -> None:
        """Evaluate all properties of the atoms, as ASE calls it.

        Parameters
        ----------
        atoms : ase.Atoms
        properties, system_changes : list of str
            As for every calculator of ASE.
        """
        super().calculate(atoms, properties, system_changes)
        held = self.atoms
        assert held is not None
        has_volume = held.cell.rank == 3
        z = self._tensor(held.numbers, torch.int64)
        pos = self._tensor(held.positions, self._dtype)
        cell = pbc = None
        if has_volume or held.pbc.any():
            cell = self._tensor(held.cell.array[None], self._dtype)
            pbc = self._tensor(held.pbc[None], torch.bool)
        with torch.no_grad():
            found = energy_forces_stress(self._model, z, pos, torch.zeros_like(z), cell, pbc)
        total = found.energy.item() + self._of_atoms(held.numbers.tolist())
        self.results = {"energy": total, "free_energy": total, "forces": _array(found.forces)}
        if has_volume and found.stress is not None:
            self.results["stress"] = _array(found.stress[0])[VOIGT]

    def _tensor(self, values: Array, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self._device)

    def _of_atoms(self, numbers: list[int]) -> float:
        """Return the sum of the energies of single atoms."""
        if self._atom_energies is None:
            return 0.0
        missing = {*numbers} - self._atom_energies.keys()
        if missing:
            raise ValueError(
                "pyops.ase.Calculator: atom_energies: expected an energy of "
                f"{chemical_symbols[min(missing)]}, got none"
            )
        return sum(self._atom_energies[n] for n in numbers)


def _floating(model: Callable[..., Tensor]) -> Tensor | None:
    """Return a parameter or buffer of floating-point numbers, if the model has any."""
    if not isinstance(model, torch.nn.Module):
        return None
    tensors = [*model.parameters(), *model.buffers()]
    return next((t for t in tensors if t.is_floating_point()), None)


def _for_evaluation(model: Model, dtype: torch.dtype) -> Model:
    """Return a copy of a module without gradients by parameters, another callable as it is."""
    if not isinstance(model, torch.nn.Module):
        return model
    made = copy.deepcopy(model).to(dtype).eval()
    found: Model = made.requires_grad_(False)
    return found


def _by_number(
    label: str, given: Mapping[str, float] | Mapping[int, float] | None
) -> dict[int, float] | None:
    """Return energies by atomic number."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"{label}: expected a mapping, got {type(given).__name__}")
    energies = {}
    for key, energy in given.items():
        number = atomic_numbers.get(key) if isinstance(key, str) else key
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ValueError(f"{label}: expected symbols or atomic numbers, got {key!r}")
        energies[int(number)] = float(energy)
    return energies


def _array(values: Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found
