"""Labelled structures for `molecules.py`: molecules by GFN2-xTB, copper by EMT."""

import ase.build
import ase.io
import numpy as np
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator


def molecules(frames=12, held_out=8, seed=0):
    """Return rattled molecules for training, and others that are held out, from `forces.py`."""
    from forces_data import ELEMENTS, make_structures, split

    def labelled(structure):
        symbols = [[*ELEMENTS][kind] for kind in structure.kinds]
        atoms = Atoms(symbols, structure.positions, info={"name": structure.name})
        labels = {"energy": structure.energy, "forces": structure.forces}
        atoms.calc = SinglePointCalculator(atoms, **labels)
        return atoms

    return [[*map(labelled, part)] for part in split(make_structures(frames, seed=seed), held_out)]


def copper(frames=400, seed=0):
    """Return copper at random strain and temperature, one in eight for validation.

    Cells are of 4, 8, 16 and 32 atoms, up to 1200 K hot: what dynamics of a crystal visits.
    """
    rng, found = np.random.default_rng(seed), []
    shapes = (1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2)
    for number in range(frames):
        atoms = ase.build.bulk("Cu", cubic=True) * shapes[number % 4]
        strain = np.eye(3) + 0.03 * rng.standard_normal((3, 3))
        atoms.set_cell(atoms.cell.array @ strain, scale_atoms=True)
        atoms.positions += rng.uniform(0, 0.2) * rng.standard_normal((len(atoms), 3))
        atoms.calc = EMT()
        labels = {
            "energy": atoms.get_potential_energy(),
            "forces": atoms.get_forces(),
            "stress": atoms.get_stress(),
        }
        atoms.calc = SinglePointCalculator(atoms, **labels)
        found.append(atoms)
    return [a for k, a in enumerate(found) if k % 8], found[::8]


KINDS = {"molecules": molecules, "copper": copper}


def write(kind, frames, folder):
    """Write the files for training and validation; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{kind}_train.xyz", folder / f"{kind}_valid.xyz"
    made = KINDS[kind]() if frames is None else KINDS[kind](frames)
    for path, structures in zip(paths, made, strict=True):
        ase.io.write(path, structures)
    return paths
