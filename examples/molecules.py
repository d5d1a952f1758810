"""Models of molecules and crystals learn energies, forces and stress from extended XYZ files.

    energy, forces, stress = energy_forces_stress(model, z, pos, batch, cell, pbc)
    loss(energy, forces, stress).backward()

Forces and stress are derivatives of the energy, so training goes through the second derivatives of
every operator. Without files, the data are made: molecules labelled by GFN2-xTB, of which some are
held out, or copper labelled by EMT.

    python examples/molecules.py                       three minutes; the picture is in results/
    python examples/molecules.py --data copper
    python examples/molecules.py --train train.xyz --valid valid.xyz --model schnet --seconds 3600
    python examples/molecules.py ... --resume          goes on from the checkpoint of `--output`
    torchrun --nproc-per-node 2 examples/molecules.py ...

The steps of a training follow each other in `Training`, so this is one file.
"""

import argparse
import contextlib
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from molecules_data import KINDS, write
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader
from tqdm import tqdm

from pyops.torch import BalancedBatchSampler
from pyops.torch.atoms import AtomsDataset, collate, energy_forces_stress
from pyops.torch.nn import DimeNetPlusPlus, SchNet

MODELS = {
    "dimenet": lambda cutoff: DimeNetPlusPlus(
        hidden_channels=64,
        out_channels=1,
        num_blocks=2,
        int_emb_size=32,
        basis_emb_size=8,
        out_emb_channels=64,
        num_spherical=7,
        num_radial=6,
        num_output_layers=1,
        cutoff=cutoff,
        max_num_neighbors=None,
    ),
    "schnet": lambda cutoff: SchNet(64, 64, 3, 32, cutoff, max_num_neighbors=None),
}
DTYPES = {"32": torch.float32, "64": torch.float64, "bf16-mixed": torch.float32}
BY_ENERGY, BY_STRESS = 0.3, 0.3


class Potential(torch.nn.Module):
    """A model with the derivatives of its energies, of batches of labelled structures."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, z, pos, batch, cell, pbc):
        return energy_forces_stress(self.model, z, pos, batch, cell, pbc)


def errors(found, wanted, counts):
    """Return errors of energies per atom, of forces, and of the stress as energy per atom.

    The last are the errors of the virial; those of labels that are missing are 0.
    """
    volume = torch.linalg.det(wanted.cell.detach()).abs()
    several = (
        (found.energy - wanted.energy) / counts,
        found.forces - wanted.forces,
        (found.stress - wanted.stress) * (volume / counts)[:, None, None],
    )
    labels = wanted.energy, wanted.forces, wanted.stress
    return [
        torch.where(torch.isnan(label), 0.0, error)
        for error, label in zip(several, labels, strict=True)
    ]


def make_loss(potential, mean_atoms, mixed):
    """Return the mean over structures of the squared errors, in (eV/Å)².

    Sums over atoms are divided by the mean number of atoms of a structure, not of the batch, so
    that a mean over ranks is one over structures.
    """

    def loss(wanted, counts):
        with torch.autocast(wanted.z.device.type, torch.bfloat16, enabled=mixed):
            found = potential(*wanted[:5])
        energy, forces, stress = errors(found, wanted, counts)
        by_forces = forces.square().sum() / (3 * mean_atoms * len(counts))
        by_energy = mean_atoms * energy.square().mean()
        return by_forces + BY_ENERGY * by_energy + BY_STRESS * mean_atoms * stress.square().mean()

    return loss


def compiled(loss):
    """Return one graph, the inner gradient included, for batches of any size."""
    torch._dynamo.config.trace_autograd_ops = True
    return torch.compile(loss, fullgraph=True, dynamic=True)


class Ranks:
    """The ranks of torchrun, or one."""

    def __init__(self):
        self.several = "RANK" in os.environ
        if self.several:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self.rank = dist.get_rank() if self.several else 0
        self.size = dist.get_world_size() if self.several else 1

    def sum(self, values):
        """Return the sum over ranks, the same on all."""
        if self.several:
            dist.all_reduce(values)
        return values

    def first(self, value):
        """Return the value of the first rank."""
        return float(self.sum(torch.tensor(value * (self.rank == 0), dtype=torch.float64)))


class Training:
    """Adam with the mean of late iterates, whose error on other structures ends it early."""

    def __init__(self, options, ranks):
        self.options, self.ranks = options, ranks
        devices = torch.cuda.device_count()
        self.device = torch.device("cuda", ranks.rank % devices) if devices else "cpu"
        dtype = DTYPES[options.precision]
        data = AtomsDataset(options.train, dtype=dtype)
        self.atom_energies = data.atom_energies()
        self.data = data.relative_to(self.atom_energies)
        self.others = AtomsDataset(options.valid, dtype=dtype).relative_to(self.atom_energies)
        torch.manual_seed(0)
        self.model = MODELS[options.model](options.cutoff).to(self.device, dtype)
        self.mean = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
        self.optimizer = torch.optim.Adam(self.model.parameters(), options.rate, betas=(0.9, 0.99))
        potential = Potential(self.model)
        if ranks.several:
            potential = DistributedDataParallel(potential)
        mean_atoms = sum(len(item.z) for item in data) / len(data)
        self.loss = make_loss(potential, mean_atoms, options.precision == "bf16-mixed")
        if options.compile:
            self.loss = compiled(self.loss)
        self.epoch, self.step, self.seconds, self.losses = 0, 0, 0.0, []
        self.best, self.since = float("inf"), 0

    @property
    def share(self):
        """How much of the training is over, in steps or in time."""
        return max(self.step / self.options.steps, self.seconds / self.options.seconds)

    def run(self):
        options = self.options
        costs = self.data.costs(options.cutoff, triplets=options.model == "dimenet")
        sampler = BalancedBatchSampler(costs, options.batch)
        loader = DataLoader(self.data, batch_sampler=sampler, collate_fn=collate)
        with tqdm(total=100, unit="%", dynamic_ncols=True, disable=self.ranks.rank > 0) as bar:
            for _ in range(options.epochs):
                if self.share >= 1 or self.since >= options.patience:
                    break
                sampler.set_epoch(self.epoch)
                for wanted in loader:
                    self.train_on(wanted.to(self.device))
                    bar.set_description(f"epoch {self.epoch}, error {self.losses[-1] ** 0.5:.3f}")
                    bar.update(min(100, int(100 * self.share)) - bar.n)
                    if self.share >= 1:
                        break
                self.epoch += 1
                self.validate()
        self.restore()

    def train_on(self, wanted):
        start = time.perf_counter()
        wanted.pos.requires_grad_(), wanted.cell.requires_grad_()
        self.optimizer.zero_grad()
        value = self.loss(wanted, wanted.counts)
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 10)
        rate = min(1.0, (self.step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(1.0, self.share)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.rate * rate
        self.optimizer.step()
        self.mean.update_parameters(self.model)
        self.losses.append(float(value.detach()))
        if self.step:  # compilation is over
            self.seconds += self.ranks.first(time.perf_counter() - start)
        self.step += 1

    def evaluate(self):
        """Return root mean squares of errors and labels: of energies per atom, forces, virials."""
        sums = torch.zeros(3, 3, dtype=torch.float64)
        mine = range(self.ranks.rank, len(self.others), self.ranks.size)
        others = torch.utils.data.Subset(self.others, mine)
        with torch.no_grad():
            for wanted in DataLoader(others, self.options.batch, collate_fn=collate):
                sums += square_sums(self.mean.module, wanted.to(self.device)).cpu()
        error, label, count = self.ranks.sum(sums)
        return [torch.where(count > 0, (s / count).sqrt(), 0.0).tolist() for s in (error, label)]

    def validate(self):
        (by_energy, by_forces, by_stress), _ = self.evaluate()
        error = by_forces**2 + BY_ENERGY * by_energy**2 + BY_STRESS * by_stress**2
        self.since = 0 if error < self.best else self.since + 1
        self.best = min(error, self.best)
        self.save("last")
        if not self.since:
            self.save("best")

    def path(self, which):
        return self.options.output / f"{self.options.model}_{which}.pt"

    def save(self, which):
        """Store a checkpoint, whole or not at all."""
        if self.ranks.rank:
            return
        state = {
            "kind": (self.options.model, self.options.cutoff),
            "atom_energies": self.atom_energies,
            "progress": (self.epoch, self.step, self.seconds, self.losses, self.best, self.since),
            **{name: getattr(self, name).state_dict() for name in ("model", "mean", "optimizer")},
        }
        temporary = self.path(which).with_suffix(".part")
        torch.save(state, temporary)
        temporary.replace(self.path(which))

    def resume(self):
        """Go on where the last epoch ended."""
        state = torch.load(self.path("last"), map_location=self.device, weights_only=True)
        if state["kind"] != (self.options.model, self.options.cutoff):
            raise SystemExit(f"--resume: expected the model of {state['kind']}")
        for name in "model", "mean", "optimizer":
            getattr(self, name).load_state_dict(state[name])
        self.epoch, self.step, self.seconds, self.losses, self.best, self.since = state["progress"]

    def restore(self):
        """Return to the best model."""
        if self.ranks.several:
            dist.barrier()
        state = torch.load(self.path("best"), map_location=self.device, weights_only=True)
        self.mean.load_state_dict(state["mean"])


def square_sums(model, wanted):
    """Return sums of squares of errors and of labels, and numbers of labels."""
    counts, labels = wanted.counts, (wanted.energy, wanted.forces, wanted.stress)
    found = energy_forces_stress(model, *wanted[:5])
    nothing = type(found)(*map(torch.zeros_like, labels))
    rows = [errors(f, wanted, counts) for f in (found, nothing)]
    sums = [[e.double().square().sum() for e in row] for row in rows]
    return torch.tensor([*sums, [label.isfinite().sum() for label in labels]], dtype=torch.float64)


def load(path):
    """Return a trained model and the energies of its elements, for `pyops.ase.Calculator`."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    name, cutoff = state["kind"]
    model = MODELS[name](cutoff)
    model.load_state_dict({k[7:]: v for k, v in state["mean"].items() if k.startswith("module.")})
    return model, state["atom_energies"]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", nargs="+", type=Path, help="files; made if there are none")
    parser.add_argument("--valid", nargs="+", type=Path)
    parser.add_argument("--data", choices=KINDS, default="molecules", help="what is made")
    parser.add_argument("--frames", type=int, help="of each molecule, or of copper")
    parser.add_argument("--model", choices=MODELS, default="dimenet")
    parser.add_argument("--cutoff", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=12, help="structures of a rank in a step")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=150, help="for training")
    parser.add_argument("--patience", type=int, default=50, help="epochs without a better model")
    parser.add_argument("--precision", choices=DTYPES, default="32")
    parser.add_argument("--compile", action="store_true", help="compile the whole loss")
    parser.add_argument("--epochs", type=int, default=10**9, help="of this run, to be resumed")
    parser.add_argument("--threads", type=int, default=1, help="of a rank: more for large batches")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("results/molecules"))
    options = parser.parse_args(arguments)
    if bool(options.train) != bool(options.valid):
        parser.error("--train and --valid: expected both or none")
    return options


def files(options, ranks):
    """Return the paths of the data, which the first rank makes if none are given."""
    if options.train:
        return options.train, options.valid
    folder = options.output / "data"
    if not ranks.rank:
        write(options.data, options.frames, folder)
    ranks.first(0.0)
    return [[folder / f"{options.data}_{part}.xyz"] for part in ("train", "valid")]


def picture(training, path):
    """Draw progress, and energies and forces of the other structures beside their labels."""
    from forces_figure import draw

    with torch.no_grad():
        wanted = collate([*training.others]).to(training.device)
        found = energy_forces_stress(training.mean.module, *wanted[:5])
    pairs = [
        (label.cpu().numpy(), got.cpu().numpy())
        for label, got in (
            (wanted.energy / wanted.counts, found.energy / wanted.counts),
            (wanted.forces, found.forces),
        )
    ]
    draw(path, np.array(training.losses), *pairs, title="Validation", wanted="label", found="model")


def main(arguments=None):
    options = parse(arguments)
    ranks = Ranks()
    if options.compile and ranks.several:
        raise SystemExit("--compile: expected one rank")
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    options.train, options.valid = files(options, ranks)
    training = Training(options, ranks)
    if options.resume:
        training.resume()
    with contextlib.ExitStack() as at_end:
        if ranks.several:
            at_end.callback(dist.destroy_process_group)
        training.run()
        found, zero = training.evaluate()
    if not ranks.rank:
        print(f"{len(training.data)} structures, {len(training.others)} others for validation")
        each = training.seconds / max(1, training.step - 1)
        print(f"{training.step} steps of {1000 * each:.0f} ms{' (compiled)' * options.compile}")
        for name, (energy, forces, virial) in {"model": found, "zero": zero}.items():
            print(
                f"{name:5} energies {1000 * energy:.1f} meV/atom, forces {forces:.3f} eV/Å, "
                f"virials {1000 * virial:.1f} meV/atom"
            )
        path = options.output / f"{options.model}.png"
        picture(training, path)
        print(f"picture in {path}, model in {training.path('best')}")
    return found, zero


if __name__ == "__main__":
    main()
