"""The example that trains models of molecules and crystals, at a small size."""

import os
import subprocess
import sys

import numpy as np
import pytest

from .... import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("ase")
import ase.build  # noqa: E402
from ase import units  # noqa: E402
from ase.md.verlet import VelocityVerlet  # noqa: E402

from pyops.ase import Calculator  # noqa: E402

from .test_calculator import thermalize  # noqa: E402

EXAMPLES = ROOT / "examples"
COPPER = "--data=copper", "--frames=24", "--cutoff=3.5", "--batch=6"


@pytest.fixture
def molecules(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    threads = torch.get_num_threads()
    import molecules

    yield molecules
    torch.set_num_threads(threads)


def by_ranks(size, *arguments):
    """Run the example on ranks of torchrun; return what it prints."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}"]
    command += ["--standalone", str(EXAMPLES / "molecules.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("model", "precision"), [("dimenet", "32"), ("schnet", "bf16-mixed")])
def test_copper(molecules, tmp_path, model, precision):
    """A few steps on energies, forces and stress beat zero, and the model runs in ASE."""
    sizes = f"--model={model}", f"--precision={precision}", "--steps=40", f"--output={tmp_path}"
    found, zero = molecules.main([*COPPER, *sizes])
    assert found[1] < 0.8 * zero[1]
    assert (tmp_path / f"{model}.png").read_bytes().startswith(b"\x89PNG")
    trained, energies = molecules.load(tmp_path / f"{model}_best.pt")
    (_, *_), others = molecules.KINDS["copper"](24)
    for atoms in others:
        forces = atoms.get_forces()
        atoms.calc = Calculator(trained, atom_energies=energies)
        assert abs(atoms.get_forces() - forces).max() < abs(forces).max()
        assert np.isfinite(atoms.get_stress()).all()


def test_resumed(molecules, tmp_path):
    """A training that is continued ends where one without interruption does."""
    ends = []
    for name, more in ("whole", "--epochs=9"), ("parts", "--epochs=2"), ("parts", "--resume"):
        arguments = "--model=schnet", "--seconds=1e9", "--steps=20", f"--output={tmp_path / name}"
        ends.append(molecules.main([*COPPER, *arguments, more]))
    whole, begun, parts = ends
    assert begun != parts == whole


def test_patience(molecules, tmp_path):
    """Training ends when the model is no better for some epochs."""
    arguments = "--model=schnet", "--rate=0", "--patience=3", "--steps=400"
    molecules.main([*COPPER, *arguments, f"--output={tmp_path}"])
    state = torch.load(tmp_path / "schnet_last.pt", weights_only=True)
    epochs, steps, *_ = state["progress"]
    assert (epochs, steps) == (4, 16)


def test_ranks(molecules, tmp_path):
    """Two ranks train on the structures of one rank with twice the batch."""
    sizes = "--model=schnet", "--precision=64", "--frames=28", "--steps=6", "--seconds=1e9"
    molecules.main([*COPPER, *sizes, "--batch=12", f"--output={tmp_path / 'one'}"])
    by_ranks(2, *COPPER, *sizes, f"--output={tmp_path / 'two'}")
    states = [
        torch.load(tmp_path / name / "schnet_last.pt", weights_only=True)["model"]
        for name in ("one", "two")
    ]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-7, atol=1e-9)


def test_molecules(molecules, tmp_path):
    """A few steps beat zero forces on unseen molecules."""
    pytest.importorskip("tblite")
    sizes = "--frames=2", "--steps=40", "--seconds=60"
    found, zero = molecules.main([*sizes, f"--output={tmp_path}"])
    assert found[1] < zero[1]
    assert found[2] == zero[2] == 0


@pytest.mark.slow
def test_compiled(molecules, tmp_path):
    sizes = "--steps=20", "--seconds=60", "--compile", f"--output={tmp_path}"
    found, zero = molecules.main([*COPPER, *sizes])
    assert found[1] < zero[1]


def test_refused_files(molecules):
    with pytest.raises(SystemExit):
        molecules.main(["--train=some.xyz"])


@pytest.mark.slow
def test_dynamics(molecules, tmp_path):
    """32 atoms of copper keep their energy for a picosecond, in a model trained for a minute."""
    arguments = "--data=copper", "--frames=160", "--cutoff=4.5", "--batch=4", "--steps=400"
    molecules.main([*arguments, "--seconds=1e9", f"--output={tmp_path}"])
    trained, energies = molecules.load(tmp_path / "dimenet_best.pt")
    atoms = ase.build.bulk("Cu", cubic=True) * 2
    atoms.calc = Calculator(trained, atom_energies=energies, dtype=torch.float64)
    thermalize(atoms, 300)
    totals, dynamics = [], VelocityVerlet(atoms, 2 * units.fs)
    dynamics.attach(lambda: totals.append(atoms.get_total_energy()), interval=5)
    dynamics.run(500)
    slope = np.polyfit(np.linspace(0, 1, len(totals)), totals, 1)[0]  # in a picosecond
    assert abs(slope) < 1e-3
    assert 100 < atoms.get_temperature() < 400
