r"""
Energies and forces with DimeNet++
==================================

A neural potential of ethanol: DimeNet++ learns the energy of GFN2-xTB, and its forces are the exact
gradient of that energy. To train on forces means to differentiate twice, which is where a list of
triplets of atoms usually costs time and memory; :class:`pyops.torch.nn.DimeNetPlusPlus` has the
constructor and the parameters of PyTorch Geometric's and forms no such list. At the end the
potential drives a molecular dynamics simulation in ASE.

.. code-block:: console

    $ pip install "pyops-kernels[torch]" ase tblite matplotlib tqdm
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from ase import units
from ase.build import molecule
from ase.calculators.calculator import Calculator, all_changes
from ase.md.verlet import VelocityVerlet
from tblite.ase import TBLite
from tqdm import tqdm

from pyops.torch.nn import DimeNetPlusPlus

torch.manual_seed(0)
torch.set_num_threads(1)

# %%
# Reference data
# --------------
# The training structures are the equilibrium geometry with all atoms displaced at random. ASE's
# interface of tblite computes energy (eV) and forces (eV/Å). Energies are counted from the mean.

rng = np.random.default_rng(0)
reference = TBLite(method="GFN2-xTB", verbosity=0)


def label(atoms):
    """Positions, energy and forces of GFN2-xTB."""
    atoms = atoms.copy()
    atoms.calc = reference
    return atoms.positions, atoms.get_potential_energy(), atoms.get_forces()


def displaced(deviation):
    """Ethanol with normally distributed displacements, in Å."""
    atoms = molecule("CH3CH2OH")
    atoms.positions += rng.normal(0, deviation, atoms.positions.shape)
    return atoms


def tensors(labels):
    """Positions, energies and forces of all structures."""
    return [torch.tensor(np.array(part), dtype=torch.float32) for part in zip(*labels, strict=True)]


deviations = rng.uniform(0.01, 0.09, 200)
positions, energies, forces = tensors([label(displaced(d)) for d in tqdm(deviations, "GFN2-xTB")])
numbers = torch.tensor(molecule("CH3CH2OH").numbers)
shift = energies.mean()
energies -= shift
print(f"{len(positions)} structures of {len(numbers)} atoms")
print(f"standard deviation of energies {energies.std():.2f} eV, of forces {forces.std():.2f} eV/Å")

# %%
# The model
# ---------
# The arguments are those of PyTorch Geometric, the sizes smaller than usual. The model finds the
# neighbours within the cutoff itself. Its third argument is the molecule of each atom of a batch.

model = DimeNetPlusPlus(
    hidden_channels=48,
    out_channels=1,
    num_blocks=2,
    int_emb_size=24,
    basis_emb_size=8,
    out_emb_channels=48,
    num_spherical=5,
    num_radial=6,
    num_output_layers=1,
)
print(f"{sum(p.numel() for p in model.parameters())} parameters")


def energy_and_forces(positions, training=False):
    """Energies [structures] and forces [structures, atoms, 3]."""
    count, atoms, _ = positions.shape
    x = positions.reshape(-1, 3).clone().requires_grad_()
    batch = torch.arange(count).repeat_interleave(atoms)
    energy = model(numbers.repeat(count), x, batch)[:, 0]
    (slope,) = torch.autograd.grad(energy.sum(), x, create_graph=training)
    return energy, -slope.reshape(positions.shape)


# %%
# Training on energies and forces
# -------------------------------
# ``create_graph=True`` above keeps the forces differentiable, so that ``loss.backward()`` passes
# through the gradient: a second derivative of every layer.

TRAIN, BATCH, STEPS = 160, 8, 450
optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.99))
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=5e-3, total_steps=STEPS, pct_start=0.1
)
history = []
for step in tqdm(range(1, STEPS + 1), "training"):
    chosen = torch.randperm(TRAIN)[:BATCH]
    energy, force = energy_and_forces(positions[chosen], training=True)
    by_force = (force - forces[chosen]).square().mean()
    by_energy = ((energy - energies[chosen]) / len(numbers)).square().mean()
    optimiser.zero_grad()
    (by_force + 10 * by_energy).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
    optimiser.step()
    schedule.step()
    history.append(by_force.item() ** 0.5)
    if step % 90 == 0:
        print(f"step {step}   error of forces {np.mean(history[-50:]):.3f} eV/Å")

energy, force = energy_and_forces(positions[TRAIN:])
test_error = force - forces[TRAIN:]
print(f"held out: forces {test_error.square().mean().sqrt():.3f} eV/Å (root mean square), ", end="")
print(f"energies {1000 * (energy - energies[TRAIN:]).abs().mean() / len(numbers):.1f} meV/atom")

# %%
# As a calculator of ASE
# ----------------------
# A calculator is a class with one method. With it all of ASE works on the learned potential:
# optimisers, vibrations, dynamics.


class Learned(Calculator):
    """The trained model as a calculator."""

    implemented_properties = ("energy", "forces")

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        """Compute energy and forces."""
        super().calculate(atoms, properties, system_changes)
        energy, force = energy_and_forces(torch.tensor(atoms.positions, dtype=torch.float32)[None])
        self.results = {"energy": (energy + shift).item(), "forces": force[0].double().numpy()}


# %%
# Dynamics at constant energy, from velocities at 300 K. The total energy is conserved as far as the
# forces are the gradient of the energy. The potential has never seen these structures: GFN2-xTB
# computes every fifth one for comparison.

atoms = molecule("CH3CH2OH")
atoms.calc = Learned()
thermal = np.sqrt(units.kB * 300 * atoms.get_masses())[:, None]
atoms.set_momenta(thermal * np.random.default_rng(1).standard_normal((len(atoms), 3)))
dynamics = VelocityVerlet(atoms, timestep=0.5 * units.fs)
trajectory, potential, total = [], [], []
for step in tqdm(range(201), "dynamics"):
    if step:
        dynamics.run(1)
    potential.append(atoms.get_potential_energy())
    total.append(atoms.get_total_energy())
    if step % 5 == 0:
        trajectory.append((step, atoms.copy(), atoms.get_forces()))

labels = [label(frame) for _, frame, _ in trajectory]
_, true_energy, true_force = (np.array(part) for part in zip(*labels, strict=True))
learned_force = np.array([f for *_, f in trajectory])
steps = np.array([s for s, *_ in trajectory])
drift = np.ptp(total) / np.ptp(potential)
print(
    f"total energy varies by {1000 * np.ptp(total):.1f} meV, {drift:.1%} of the potential's range"
)
gap = np.array(potential)[steps] - true_energy
print(f"difference of the energies to GFN2-xTB: {1000 * gap.std():.1f} meV (standard deviation)")
rms = np.sqrt(np.mean((learned_force - true_force) ** 2))
print(f"forces on the trajectory: error {rms:.3f} of {true_force.std():.3f} eV/Å")

# %%

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
left.semilogy(history, color="0.75", linewidth=0.8)
smooth = np.convolve(history, np.ones(20) / 20, "valid")
left.semilogy(np.arange(19, len(history)), smooth, color="tab:blue")
left.set(xlabel="step of Adam", ylabel="error of forces, eV/Å", title="training")
for truth, ours, name, colour in (
    (forces[TRAIN:].numpy(), force.numpy(), "displaced, held out", "tab:orange"),
    (true_force, learned_force, "on the trajectory", "tab:blue"),
):
    middle.plot(truth.ravel(), ours.ravel(), ".", color=colour, markersize=3, label=name)
limits = np.array([-1, 1]) * float(forces[TRAIN:].abs().max())
middle.plot(limits, limits, color="black", linewidth=0.6)
middle.set(xlabel="GFN2-xTB, eV/Å", ylabel="DimeNet++, eV/Å", title="forces", aspect="equal")
middle.legend(frameon=False, fontsize="small", markerscale=3)
time = 0.5 * np.arange(len(total))
zero = true_energy[0]
right.plot(time, np.array(total) - zero, color="0.5", label="total")
right.plot(time, np.array(potential) - zero, color="tab:blue", label="potential")
right.plot(0.5 * steps, true_energy - zero, "o", color="black", markersize=3, label="GFN2-xTB")
right.set(xlabel="time, fs", ylabel="energy, eV", title="dynamics at constant energy")
right.legend(frameon=False, fontsize="small")
for axis in (left, middle, right):
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
plt.show()

# %%
# The right-hand picture shows the energies of the same structures by both methods, on one scale:
# the learned potential follows GFN2-xTB along a path that it chose itself. This potential knows one
# molecule near its equilibrium. For more, more data is needed: ``./run demo molecules`` in the
# repository learns 60 molecules and is tested on others.
#
# To build a model of your own from the same parts, use the operators: `pyops.radius_graph` lists
# neighbours, :obj:`pyops.torch.dimenet_basis` computes both bases and
# :obj:`pyops.torch.dimenet_aggregate` the sums over pairs of edges, and
# :obj:`pyops.torch.spherical_harmonics` serves equivariant models.
