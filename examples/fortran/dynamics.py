"""Copper in motion: a SchNet that PyTorch trains on energies of EMT moves 32 atoms in Fortran.

    python examples/fortran/dynamics.py PROGRAM    about two minutes; the picture is in results/

The same dynamics by `pyops.ase.Calculator` are drawn beside it.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import ase.build
import matplotlib.pyplot as plt
import numpy as np
import torch
from ase import units
from ase.md.velocitydistribution import Stationary
from ase.md.verlet import VelocityVerlet
from safetensors.numpy import save_file

import pyops
import pyops.ase

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import molecules  # noqa: E402


def crystal():
    """Return 32 atoms of copper, 600 K hot."""
    atoms = ase.build.bulk("Cu", cubic=True) * (2, 2, 2)
    spread = np.sqrt(units.kB * 600 * atoms.get_masses())[:, None]
    atoms.set_momenta(spread * np.random.default_rng(0).standard_normal((len(atoms), 3)))
    Stationary(atoms)
    return atoms


def trained(folder, seconds):
    """Return a SchNet for copper in float64, trained for some seconds."""
    options = "--data copper --frames 240 --model schnet --cutoff 4.5 --batch 4 --rate 3e-3"
    molecules.main([*options.split(), "--seconds", str(seconds), "--output", str(folder)])
    model, energies = molecules.load(folder / "schnet_best.pt")
    return model.double().eval(), energies


def write(folder, model, atoms):
    """Write the model and where the atoms start."""
    z, pos = torch.from_numpy(atoms.numbers).long(), torch.from_numpy(atoms.positions)
    cell = torch.from_numpy(atoms.cell.array)
    pyops.models.save(model, folder / "model.safetensors", (z, pos, None, cell))
    arrays = {
        "positions": atoms.positions,
        "velocities": atoms.get_velocities(),
        "masses": atoms.get_masses(),
        "cell": atoms.cell.array,
        "numbers": atoms.numbers.astype(np.int64),
    }
    save_file(arrays, folder / "start.safetensors")
    return folder / "model.safetensors", folder / "start.safetensors"


def in_python(model, atoms, steps):
    """Return time, temperature, potential energy and drift of the same dynamics by ASE."""
    atoms.calc = pyops.ase.Calculator(model)
    first, rows = atoms.get_total_energy(), []

    def note():
        drift = atoms.get_total_energy() - first
        rows.append((motion.get_time() / units.fs, atoms.get_temperature(),
                     atoms.get_potential_energy(), drift))  # fmt: skip

    motion = VelocityVerlet(atoms, 2 * units.fs)
    motion.attach(note, interval=10)
    motion.run(steps)
    return np.array(rows)


def draw(path, fortran, python):
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for rows, label, style in (fortran, "Fortran", "-"), (python, "ASE", ":"):
        left.plot(rows[:, 0], rows[:, 1], style, label=label)
        right.plot(rows[:, 0], 1000 * rows[:, 3], style, label=label)
    left.set(xlabel="time (fs)", ylabel="temperature (K)")
    right.set(xlabel="time (fs)", ylabel="change of the total energy (meV)")
    left.legend(frameon=False)
    for axes in left, right:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="examples/fortran/dynamics.f90, compiled")
    parser.add_argument("--seconds", type=float, default=60, help="for training")
    parser.add_argument("--steps", type=int, default=500, help="of 2 fs")
    parser.add_argument("--output", type=Path, default=Path("results/dynamics"))
    options = parser.parse_args(arguments)
    model, _ = trained(options.output, options.seconds)
    atoms = crystal()
    files = write(options.output, model, atoms)
    command = [options.program, *map(str, files), str(options.steps)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    fortran = np.array([line.split() for line in printed.splitlines()], float)
    python = in_python(model, atoms, options.steps)
    early = fortran[:, 0] <= 200  # later rounding grows, as motion is chaotic
    apart = abs(fortran[early, 2] - python[early, 2]).max()
    time, energy = fortran[:, 0] / 1000, 1000 * fortran[:, 3]
    print(
        f"{len(atoms)} atoms, {time[-1]:.1f} ps: the total energy fluctuates by "
        f"{energy.std():.3f} meV and drifts by {np.polyfit(time, energy, 1)[0]:.3f} meV/ps"
    )
    print(f"energies of Fortran and Python differ by {apart:.1e} eV in the first 0.2 ps")
    picture = options.output / "dynamics.png"
    draw(picture, fortran, python)
    print(f"picture in {picture}")
    return fortran, python


if __name__ == "__main__":
    main()
