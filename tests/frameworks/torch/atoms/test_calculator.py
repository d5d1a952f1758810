"""`pyops.ase.Calculator`: properties beside differences, relaxation and dynamics."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ase")
import ase.build  # noqa: E402
from ase import units  # noqa: E402
from ase.calculators.calculator import PropertyNotImplementedError  # noqa: E402
from ase.calculators.fd import (  # noqa: E402
    calculate_numerical_forces,
    calculate_numerical_stress,
)
from ase.filters import FrechetCellFilter, UnitCellFilter  # noqa: E402
from ase.md.verlet import VelocityVerlet  # noqa: E402
from ase.optimize import BFGS  # noqa: E402

import pyops.torch as pt  # noqa: E402
from pyops.ase import Calculator  # noqa: E402

from .models import MODELS, model  # noqa: E402

EACH = pytest.mark.parametrize("name", MODELS)


class Morse(torch.nn.Module):
    """Pair potential of nearest images that vanishes smoothly at the cutoff."""

    def __init__(self, length=2.5, cutoff=4.5):
        super().__init__()
        self.length = torch.nn.Parameter(torch.tensor(length))
        self.cutoff = cutoff

    def forward(self, z, pos, batch, cell=None, pbc=None):
        graph, vectors, *_ = pt.radius_graph(pos, self.cutoff, cell=cell, pbc=pbc, batch=batch)
        d = vectors.norm(dim=1)
        fade = torch.exp(-1.5 * (d - self.length))
        pairs = 0.1 * (fade * fade - 2 * fade) * (1 - d / self.cutoff) ** 3
        rows = pt.aggregate(graph, edge=pairs[:, None])
        return rows.new_zeros(int(batch.max()) + 1).index_add(0, batch, rows[:, 0])


def thermalize(atoms, temperature, seed=0):
    """Draw velocities of a temperature, without a drift of the whole."""
    drawn = np.random.default_rng(seed).standard_normal((len(atoms), 3))
    velocities = drawn * np.sqrt(units.kB * temperature / atoms.get_masses())[:, None]
    atoms.set_velocities(velocities - velocities.mean(0))


def rattled(seed=0, **options):
    atoms = ase.build.bulk("NaCl", "rocksalt", a=5.0, cubic=False) * (1, 2, 1)
    atoms.rattle(0.1, seed=seed)
    return ase.Atoms(atoms, **options)


@EACH
def test_properties(name):
    """Forces and stress are the slopes of the energy, as ASE differentiates it."""
    atoms = rattled()
    atoms.calc = Calculator(model(name))
    differences = calculate_numerical_forces(atoms, 1e-4), calculate_numerical_stress(atoms, 1e-5)
    np.testing.assert_allclose(atoms.get_forces(), differences[0], atol=1e-7)
    np.testing.assert_allclose(atoms.get_stress(), differences[1], atol=1e-7)
    assert atoms.get_stress().shape == (6,)
    assert abs(atoms.get_stress()).max() > 1e-5
    assert atoms.get_potential_energy(force_consistent=True) == atoms.get_potential_energy()


@EACH
def test_supercell(name):
    energies = []
    for times in (1, 1, 1), (2, 1, 1), (1, 2, 3):
        atoms = rattled() * times
        atoms.calc = Calculator(model(name))
        energies.append(atoms.get_potential_energy() / len(atoms))
    np.testing.assert_allclose(energies, energies[0], rtol=1e-12)


@EACH
def test_precision(name):
    """The model is copied in the requested precision and stays as it is."""
    potential, atoms = model(name).float(), rattled()
    energies = []
    for dtype in None, torch.float32, torch.float64:
        atoms.calc = Calculator(potential, dtype=dtype)
        energies.append(atoms.get_potential_energy())
    assert energies[0] == energies[1] != energies[2]
    assert energies[0] == pytest.approx(energies[2], rel=1e-4)
    parameters = [*potential.parameters()]
    assert {p.dtype for p in parameters} == {torch.float32}
    assert potential.training
    assert any(p.requires_grad for p in parameters)


def test_molecules():
    """Without a cell, with the vacuum of one, and with a slab."""
    water = ase.build.molecule("H2O")
    calculator = Calculator(model("SchNet"), atom_energies={"O": -5.0, "H": -1.0})
    water.calc = calculator
    energy = water.get_potential_energy()
    with pytest.raises(PropertyNotImplementedError):
        water.get_stress()
    without = ase.build.molecule("H2O", calculator=Calculator(model("SchNet")))
    assert energy == pytest.approx(without.get_potential_energy() - 7)
    water.center(vacuum=5.0)
    assert water.get_potential_energy() == pytest.approx(energy, rel=1e-12)
    assert water.get_stress().shape == (6,)
    slab = ase.build.fcc111("Cu", (1, 1, 2), vacuum=None)
    assert slab.cell.rank == 2
    slab.calc = Calculator(model("SchNet"))
    assert slab.get_forces().shape == (2, 3)
    with pytest.raises(PropertyNotImplementedError):
        slab.get_stress()


def test_one_evaluation():
    """All properties of one configuration are of one call of the model."""
    calls, potential = [], model("SchNet")
    atoms = rattled()
    atoms.calc = Calculator(lambda *given, **more: calls.append(1) or potential(*given, **more))
    atoms.get_forces(), atoms.get_stress(), atoms.get_potential_energy()
    atoms.set_initial_charges([1.0] * len(atoms))
    atoms.get_forces()
    assert len(calls) == 1
    atoms.rattle(0.01)
    atoms.get_forces()
    assert len(calls) == 2


@pytest.mark.parametrize("kind", [FrechetCellFilter, UnitCellFilter])
def test_relaxation(kind):
    """Positions and cell relax until forces and stress vanish."""
    atoms = ase.build.bulk("Cu", "fcc", a=3.9, cubic=True)
    atoms.rattle(0.05, seed=1)
    atoms.calc = Calculator(Morse(), dtype=torch.float64)
    before = atoms.get_potential_energy()
    relaxation = BFGS(kind(atoms), logfile=None)
    assert relaxation.run(fmax=2e-4, steps=200)
    assert relaxation.get_number_of_steps() < 200
    assert atoms.get_potential_energy() < before
    assert abs(atoms.get_stress()).max() < 1e-4
    assert abs(atoms.get_forces()).max() < 1e-3


def test_dynamics():
    """Energy is conserved in a short trajectory, the better the shorter the step."""
    spreads = []
    for step in 4.0, 2.0:
        atoms = ase.build.bulk("Cu", "fcc", a=3.6, cubic=True)
        atoms.calc = Calculator(Morse(), dtype=torch.float64)
        thermalize(atoms, 300)
        dynamics, energies = VelocityVerlet(atoms, step * units.fs), []
        dynamics.attach(lambda atoms=atoms, e=energies: e.append(atoms.get_total_energy()))
        dynamics.run(int(200 / step))
        spreads.append(np.ptp(energies))
    assert 3 < spreads[0] / spreads[1] < 5  # of second order
    assert spreads[1] < 2e-3


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"dtype": torch.bfloat16}, ValueError, "dtype: expected float32 or float64, got torch.b"),
        ({"model": 3}, TypeError, "model: expected a callable, got int"),
        ({"atom_energies": [1.0]}, TypeError, "atom_energies: expected a mapping, got list"),
        ({"atom_energies": {"Xx": 1.0}}, ValueError, "atom_energies: expected symbols or .* 'Xx'"),
    ],
)
def test_refusals(options, kind, message):
    with pytest.raises(kind, match=rf"^pyops\.ase\.Calculator: {message}"):
        Calculator(**{"model": model("SchNet"), **options})


def test_missing_elements():
    atoms = rattled(calculator=Calculator(model("SchNet"), atom_energies={11: -1.0}))
    with pytest.raises(ValueError, match="atom_energies: expected an energy of Cl, got none"):
        atoms.get_potential_energy()


def test_imports():
    """`import pyops`, its layers and its potentials do not import ASE."""
    program = "import sys, pyops, pyops.torch.nn, pyops.torch.atoms; print('ase' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
