"""Rattled molecules of ASE's g2 set with energies and forces of GFN2-xTB, and a pair potential."""

from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.build import molecule
from ase.collections import g2
from tblite.interface import Calculator
from tqdm import tqdm

ELEMENTS = {"H": 0, "C": 1, "N": 2, "O": 3}
BOHR, HARTREE = 0.529177210903, 27.211386245988  # in angstrom and electron volt


@dataclass(frozen=True)
class Structure:
    name: str
    kinds: np.ndarray  # of the atoms, 0 to 3
    positions: np.ndarray  # angstrom
    energy: float  # electron volt
    forces: np.ndarray  # electron volt / angstrom


def molecules():
    """Names of the molecules of H, C, N and O, closed-shell and of three to twelve atoms."""
    names = []
    for name in g2.names:
        atoms = molecule(name)
        closed = sum(atoms.numbers) % 2 == 0 and not atoms.get_initial_magnetic_moments().any()
        if closed and set(atoms.symbols) <= ELEMENTS.keys() and 3 <= len(atoms) <= 12:
            names.append(name)
    return names


def label(name: str, atoms: Atoms) -> Structure:
    calculator = Calculator("GFN2-xTB", atoms.numbers, atoms.positions / BOHR)
    calculator.set("verbosity", 0)
    result = calculator.singlepoint()
    return Structure(
        name,
        np.array([ELEMENTS[symbol] for symbol in atoms.symbols]),
        atoms.positions,
        float(result.get("energy")) * HARTREE,
        -result.get("gradient") * HARTREE / BOHR,
    )


def make_structures(frames, rattle=0.08, seed=0):
    """So many rattled frames of each molecule."""
    rng, structures = np.random.default_rng(seed), []
    for name in tqdm(molecules(), desc="labels", unit="molecule", dynamic_ncols=True):
        for _ in range(frames):
            atoms = molecule(name)
            atoms.positions += rattle * rng.standard_normal(atoms.positions.shape)
            structures.append(label(name, atoms))
    return structures


def split(structures, held_out, seed=0):
    """Molecules are held out, not frames."""
    names = np.random.default_rng(seed).permutation(sorted({s.name for s in structures}))
    hidden = set(names[:held_out])
    return tuple([s for s in structures if (s.name in hidden) == test] for test in (False, True))


class AtomEnergies:
    """Energies of the elements by least squares: what no arrangement of the atoms changes."""

    def __init__(self, structures):
        counts = np.stack([np.bincount(s.kinds, minlength=4) for s in structures])
        self.values = np.linalg.lstsq(counts, [s.energy for s in structures], rcond=None)[0]

    def __call__(self, structure):
        return self.values[structure.kinds].sum()


class PairPotential:
    """The best sum over pairs, 12 Gaussians of the distance for each pair of elements, and over
    atoms, by least squares of forces and energies."""

    centres, width = np.linspace(0.8, 4.0, 12), 0.3
    by_energy, ridge = 3.0, 1.0

    def __init__(self, structures, atoms):
        rows, wanted = [], []
        for s in structures:
            energy, forces = self._columns(s)
            share = self.by_energy / len(s.kinds)
            rows += [share * energy[None], forces]
            wanted += [[share * (s.energy - atoms(s))], s.forces.ravel()]
        a, b = np.concatenate(rows), np.concatenate(wanted)
        self.weights = np.linalg.solve(a.T @ a + self.ridge * np.eye(a.shape[1]), a.T @ b)

    def __call__(self, structure):
        """Energy without that of the atoms, and forces."""
        energy, forces = self._columns(structure)
        return energy @ self.weights, (forces @ self.weights).reshape(-1, 3)

    def _columns(self, s):
        """Energy and forces of each Gaussian of each pair of elements, and of each element."""
        i, j = np.triu_indices(len(s.kinds), 1)
        vectors = s.positions[j] - s.positions[i]
        d = np.linalg.norm(vectors, axis=1)[:, None]
        value = np.exp(-(((d - self.centres) / self.width) ** 2))
        slope = -2 * (d - self.centres) / self.width**2 * value
        kind = 4 * np.minimum(s.kinds[i], s.kinds[j]) + np.maximum(s.kinds[i], s.kinds[j])
        energy = np.zeros((16, len(self.centres)))
        np.add.at(energy, kind, value)
        forces = np.zeros((len(s.kinds), 3, 16, len(self.centres)))
        push = (vectors / d)[:, :, None] * slope[:, None]
        np.add.at(forces, (i, slice(None), kind), push)
        np.add.at(forces, (j, slice(None), kind), -push)
        counts = np.bincount(s.kinds, minlength=4)
        forces = forces.reshape(3 * len(s.kinds), -1)
        return np.append(energy, counts), np.pad(forces, ((0, 0), (0, len(counts))))
