"""DimeNet++ in PyTorch learns energies and forces of molecules from GFN2-xTB, molecules held out.

    energy = model(z, pos, batch)
    force = -torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]
    loss(energy, force).backward()

The model is that of PyTorch Geometric, from `pyops.torch.nn`: it finds neighbours itself, and what
it does with angles is differentiated twice without a list of triplets.

    python examples/torch_forces.py              about three minutes; the picture is in results/
    python examples/torch_forces.py --compile    the same, compiled into one graph
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from forces_data import AtomEnergies, PairPotential, make_structures, split
from forces_figure import draw
from tqdm import tqdm

from pyops.torch.nn import DimeNetPlusPlus

NUMBERS = torch.tensor([1, 6, 7, 8])
BATCH, RATE, BY_ENERGY = 12, 4e-3, 0.3
SIZES = {
    "hidden_channels": 64,
    "out_channels": 1,
    "num_blocks": 2,
    "int_emb_size": 32,
    "basis_emb_size": 8,
    "out_emb_channels": 64,
    "num_spherical": 7,
    "num_radial": 6,
    "num_output_layers": 1,
}


class Batch:
    """Molecules side by side, with energies less those of the atoms, and forces."""

    def __init__(self, structures, atoms):
        counts = torch.tensor([len(s.kinds) for s in structures])
        self.z = NUMBERS[torch.from_numpy(np.concatenate([s.kinds for s in structures]))]
        self.pos = tensor(np.concatenate([s.positions for s in structures])).requires_grad_()
        self.batch = torch.arange(len(counts)).repeat_interleave(counts)
        self.counts = counts
        self.energy = tensor([s.energy - atoms(s) for s in structures])
        self.force = tensor(np.concatenate([s.forces for s in structures]))

    def __iter__(self):
        return iter((self.z, self.pos, self.batch, self.counts, self.energy, self.force))


def tensor(array):
    return torch.tensor(array, dtype=torch.get_default_dtype())


def energy_and_forces(model, z, pos, batch):
    """The forces are the slope of the energy, itself to be differentiated."""
    energy = model(z, pos, batch)[:, 0]
    (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
    return energy, -slope


def make_loss(model):
    def loss(z, pos, batch, counts, wanted_energy, wanted_force):
        """Mean squares of the errors of forces, and of energies per atom."""
        energy, force = energy_and_forces(model, z, pos, batch)
        by_energy = ((energy - wanted_energy) / counts).pow(2).mean()
        mean = pos.shape[0] / counts.shape[0]
        return (force - wanted_force).pow(2).mean() + BY_ENERGY * mean * by_energy

    return loss


def make_compiled_loss(model):
    """One graph, the inner gradient included, for batches of any size."""
    torch._dynamo.config.trace_autograd_ops = True
    return torch.compile(make_loss(model), fullgraph=True, dynamic=True)


def train(model, loss, structures, atoms, steps, seconds, seed=0):
    """Adam, the rate falling to zero; ends early where time is up."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), RATE, betas=(0.9, 0.99))
    mean = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95)
    )
    losses, share, step = [], 0.0, 0
    with tqdm(total=100, unit="%", dynamic_ncols=True) as bar:
        while share < 1:
            step += 1
            chosen = rng.choice(len(structures), min(BATCH, len(structures)), replace=False)
            optimizer.zero_grad()
            value = loss(*Batch([structures[k] for k in chosen], atoms))
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, step / 20) * 0.5 * (1 + np.cos(np.pi * share))
            optimizer.step()
            mean.update_parameters(model)
            losses.append(float(value.detach()))
            if step == 1:
                start = time.perf_counter()  # compilation is over
            share = max(step / steps, (time.perf_counter() - start) / seconds)
            bar.set_description(f"step {step}, forces and energies off by {losses[-1] ** 0.5:.3f}")
            bar.update(min(100, int(100 * share)) - bar.n)
    model.load_state_dict(mean.module.state_dict())
    return np.array(losses), (time.perf_counter() - start) / max(1, step - 1)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=12, help="rattled frames of each molecule")
    parser.add_argument("--held-out", type=int, default=8, help="molecules to test on")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=150, help="for training")
    parser.add_argument("--compile", action="store_true", help="compile the whole loss")
    parser.add_argument("--output", type=Path, default=Path("results/torch_forces.png"))
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a batch of some hundred edges keeps no second thread busy
    training, test = split(make_structures(options.frames), options.held_out)
    atoms = AtomEnergies(training)
    pairs = PairPotential(training, atoms)
    model = DimeNetPlusPlus(**SIZES)
    loss = make_compiled_loss(model) if options.compile else make_loss(model)
    losses, each = train(model, loss, training, atoms, options.steps, options.seconds)
    batch = Batch(test, atoms)
    got = [t.detach().numpy() for t in energy_and_forces(model, batch.z, batch.pos, batch.batch)]
    energy, forces, counts = (t.numpy() for t in (batch.energy, batch.force, batch.counts))
    by_pairs = [pairs(s) for s in test]
    guesses = {
        "DimeNet++": got,
        "pair potential": [
            np.array([e for e, _ in by_pairs]),
            np.concatenate([f for _, f in by_pairs]),
        ],
        "zero": [0 * energy, 0 * forces],
    }
    errors = {
        name: (
            float(np.sqrt(np.mean((f - forces) ** 2))),
            float(np.sqrt(np.mean(((e - energy) / counts) ** 2))),
        )
        for name, (e, f) in guesses.items()
    }
    print(f"{len(training)} structures, {len(test)} of other molecules for the test")
    print(f"{len(losses)} steps of {1000 * each:.0f} ms{' (compiled)' * options.compile}")
    for name, (by_force, by_energy) in errors.items():
        print(f"{name:16} forces {by_force:.3f} eV/A, energies {1000 * by_energy:.0f} meV/atom")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(options.output, losses, (energy / counts, got[0] / counts), (forces, got[1]))
    print(f"picture in {options.output}")
    return errors


if __name__ == "__main__":
    main()
