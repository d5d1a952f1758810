"""Data set of molecules and crystals from files that ASE reads, such as extended XYZ."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset

from ...neighbours import check_cutoff, near_images
from ._batch import AtomsBatch

if TYPE_CHECKING:
    from ase import Atoms

    from ..._call.types import Array

    Path: TypeAlias = str | os.PathLike[str]

KEYS = "energy", "forces", "stress"
CALLER = "AtomsDataset"


class _Labels(NamedTuple):
    """Labels of one structure, NaN if they are missing."""

    energy: float
    forces: Array
    stress: Array


class AtomsDataset(Dataset[AtomsBatch]):
    """Molecules and crystals with energies, forces and stresses, from files that ASE reads.

    Labels are taken from the results of the structure's calculator, where ASE stores those of
    extended XYZ files, or else from its `info` and `arrays`. Those that are missing are NaN. They
    are kept in float64 until an item is made.

    Parameters
    ----------
    source : path, sequence of paths, or sequence of ase.Atoms
        Files are read whole, by `ase.io.read`.
    keys : mapping, optional
        Names of the labels in the files, such as ``{"energy": "REF_energy"}``; by default energy,
        forces and stress.
    dtype : torch.dtype
        Type of positions, cells and labels of the items.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a structure or label has the wrong shape.

    Examples
    --------
    >>> import ase.build, torch
    >>> from ase.calculators.emt import EMT
    >>> from pyops.torch.atoms import AtomsDataset, collate
    >>> crystals = [ase.build.bulk("Cu", a=a) for a in (3.5, 3.6, 3.7)]
    >>> for crystal in crystals:
    ...     crystal.calc = EMT()
    ...     _ = crystal.get_potential_energy()
    >>> data = AtomsDataset(crystals)
    >>> loader = torch.utils.data.DataLoader(data, batch_size=3, collate_fn=collate)
    >>> next(iter(loader)).cell.shape
    torch.Size([3, 3, 3])
    """

    def __init__(
        self,
        source: Path | Sequence[Path] | Sequence[Atoms],
        *,
        keys: Mapping[str, str] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{CALLER}: dtype: expected float32 or float64, got {dtype}")
        names = {key: key for key in KEYS}
        for key, name in (keys or {}).items():
            if key not in names or not isinstance(name, str):
                raise ValueError(f"{CALLER}: keys: expected names of {KEYS}, got {key!r}: {name!r}")
            names[key] = name
        self.dtype = dtype
        given = _structures(source)
        for name in (keys or {}).values():
            if not any(name in {*a.info, *a.arrays, *_results(a)} for a in given):
                raise ValueError(
                    f"{CALLER}: keys: expected {name!r} in a structure, got it in none"
                )
        self._labels = [_labels(number, one, names) for number, one in enumerate(given)]
        self._atoms = [one.copy() for one in given]  # without calculators

    def __len__(self) -> int:
        """Return the number of structures."""
        return len(self._atoms)

    def __getitem__(self, number: int) -> AtomsBatch:
        """Return one structure, as a batch of one graph."""
        atoms, labels = self._atoms[number], self._labels[number]
        z = torch.tensor(atoms.numbers, dtype=torch.int64)
        reals = (
            torch.tensor(values, dtype=self.dtype)
            for values in (atoms.positions, atoms.cell.array[None], [labels.energy])
        )
        pos, cell, energy = reals
        forces, stress = (torch.tensor(values, dtype=self.dtype) for values in labels[1:])
        pbc = torch.tensor(atoms.pbc[None])
        return AtomsBatch(z, pos, 0 * z, cell, pbc, energy, forces, stress[None])

    def atom_energies(self) -> dict[str, float]:
        """Fit an energy of each element to the energies, by least squares.

        Returns
        -------
        dict
            Energy by symbol of the element, for `relative_to` and `pyops.ase.Calculator`.

        Raises
        ------
        ValueError
            If an element occurs in no structure that has an energy.
        """
        every = sorted({symbol for atoms in self._atoms for symbol in atoms.symbols})
        known = [k for k, labels in enumerate(self._labels) if np.isfinite(labels.energy)]
        counts = np.array([[self._atoms[k].symbols.count(s) for s in every] for k in known])
        energies = np.array([self._labels[k].energy for k in known])
        counts = counts.reshape(len(known), len(every))
        missing = [s for s, column in zip(every, counts.T, strict=True) if not column.any()]
        if missing:
            raise ValueError(
                f"{CALLER}.atom_energies: expected an energy of a structure with {missing[0]}, "
                "got none"
            )
        values = np.linalg.lstsq(counts, energies, rcond=None)[0]
        return dict(zip(every, values.tolist(), strict=True))

    def relative_to(self, atom_energies: Mapping[str, float]) -> AtomsDataset:
        """Return the same structures with energies less those of their atoms.

        Parameters
        ----------
        atom_energies : mapping
            Energy by symbol of the element.

        Returns
        -------
        AtomsDataset

        Raises
        ------
        ValueError
            If an element has no energy.
        """
        made = AtomsDataset.__new__(AtomsDataset)
        made.dtype, made._atoms, made._labels = self.dtype, self._atoms, []
        for atoms, labels in zip(self._atoms, self._labels, strict=True):
            missing = {*atoms.symbols} - atom_energies.keys()
            if missing:
                raise ValueError(
                    f"{CALLER}.relative_to: atom_energies: expected an energy of {min(missing)}, "
                    "got none"
                )
            less = sum(atom_energies[symbol] for symbol in atoms.symbols)
            made._labels.append(labels._replace(energy=labels.energy - less))
        return made

    def costs(self, cutoff: float, *, triplets: bool = False) -> Array:
        """Return the number of edges of each structure, for `pyops.torch.BalancedBatchSampler`.

        Parameters
        ----------
        cutoff : float
            Distance up to which atoms are neighbours.
        triplets : bool
            Whether to count pairs of edges that meet at an atom, for DimeNet.

        Returns
        -------
        array of int64, shape (structures,)
        """
        check_cutoff(f"{CALLER}.costs", cutoff)
        found = []
        for atoms in self._atoms:
            cell = atoms.cell.array if atoms.pbc.any() else None
            edges, *_ = near_images(atoms.positions, cutoff, cell=cell, pbc=atoms.pbc)
            degrees = np.bincount(edges[1], minlength=1).astype(np.int64)
            found.append(int((degrees**2).sum() if triplets else degrees.sum()))
        return np.array(found, np.int64)


def _structures(source: object) -> list[Atoms]:
    """Return the structures of files, or those given."""
    import ase
    import ase.io

    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if not isinstance(source, Sequence):
        raise TypeError(
            f"{CALLER}: source: expected paths or ase.Atoms, got {type(source).__name__}"
        )
    found: list[Atoms] = []
    for one in source:
        if isinstance(one, ase.Atoms):
            found.append(one)
        elif isinstance(one, (str, os.PathLike)):
            found += ase.io.read(one, index=":")
        else:
            raise TypeError(
                f"{CALLER}: source: expected paths or ase.Atoms, got {type(one).__name__}"
            )
    if not found:
        raise ValueError(f"{CALLER}: source: expected at least one structure, got none")
    return found


def _results(atoms: Atoms) -> dict[str, object]:
    """Return what the calculator of a structure has computed."""
    found = getattr(atoms.calc, "results", {})
    return {name: value for name, value in found.items() if value is not None}


def _labels(number: int, atoms: Atoms, names: Mapping[str, str]) -> _Labels:
    """Return the labels of a structure, NaN if they are missing."""
    results = _results(atoms)
    if results and atoms.calc.check_state(atoms):
        raise ValueError(
            f"{CALLER}: source: expected results of the calculator for the atoms as they are, got "
            f"those of others in structure {number}"
        )
    stored = {**atoms.info, **atoms.arrays, **results}
    given = {key: stored.get(name) for key, name in names.items()}
    shapes = {"energy": (), "forces": (len(atoms), 3), "stress": (3, 3)}
    found: dict[str, Array] = {}
    for key, shape in shapes.items():
        value = np.full(shape, np.nan) if given[key] is None else np.asarray(given[key])
        if key == "stress" and value.shape in ((6,), (9,)):
            value = value[VOIGT] if len(value) == 6 else value.reshape(3, 3)
        if value.shape != shape or value.dtype.kind not in "iuf":
            raise ValueError(
                f"{CALLER}: {names[key]}: expected numbers of shape {shape}, got {value.dtype} of "
                f"shape {value.shape} in structure {number}"
            )
        found[key] = value.astype(np.float64)
        if np.isinf(found[key]).any():
            raise ValueError(
                f"{CALLER}: {names[key]}: expected finite numbers, or NaN for none, got infinite "
                f"ones in structure {number}"
            )
    if np.isfinite(found["stress"]).any() and atoms.cell.rank < 3:
        raise ValueError(
            f"{CALLER}: {names['stress']}: expected a cell that has a volume beside it, got none "
            f"in structure {number}"
        )
    return _Labels(float(found["energy"]), found["forces"], found["stress"])


VOIGT = np.array([[0, 5, 4], [5, 1, 3], [4, 3, 2]])
"""Place of each element of the stress among the six of ASE."""
