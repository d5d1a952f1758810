"""A model of neuraloperator before and after changing one import.

GINO, the geometry-informed neural operator, takes a function on scattered points to a regular grid,
works there, and takes the result to other points: both ways are graph neural operators, the layer
that is exchanged. Each side runs in a process of its own, with the same weights and data.

    python examples/neuralop_model.py      about a minute
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from tqdm import tqdm

SIDES = {
    "neuraloperator": "from neuralop.layers.gno_block import GNOBlock",
    "pyops": "from pyops.torch.nn import GNOBlock",
}


def make_model(side, grid):
    """The model with the layer of one side."""
    from neuralop.models import gino

    exec(SIDES[side], vars(gino))
    torch.manual_seed(0)
    return gino.GINO(
        in_channels=2,
        out_channels=1,
        in_gno_radius=0.2,
        out_gno_radius=0.2,
        gno_use_torch_scatter=False,
        fno_in_channels=2,
        fno_n_modes=(grid // 2,) * 3,
        fno_hidden_channels=16,
        fno_n_layers=2,
    )


def draw_data(points, grid):
    """Points on a bumpy sphere, a function there, the grid around, and what to learn."""
    torch.manual_seed(1)
    outward = torch.nn.functional.normalize(torch.randn(points, 3), dim=1)
    height = 0.35 + 0.05 * torch.sin(6 * outward[:, :1]) * torch.cos(5 * outward[:, 1:2])
    surface = 0.5 + height * outward
    axis = torch.linspace(0, 1, grid)
    mesh = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), dim=-1)
    values = torch.cat([height, outward[:, 2:]], dim=1)
    target = torch.sin(7 * surface[:, :1]) * outward[:, 2:]
    given = {
        "x": values[None],
        "input_geom": surface[None],
        "latent_queries": mesh[None],
        "output_queries": surface[None],
    }
    return given, target[None]


def run(side, points, grid, steps, output):
    """A few steps of training; results of the first one, times, and the memory that they took."""
    model, (given, target) = make_model(side, grid), draw_data(points, grid)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first, times = {}, []
    for _ in tqdm(range(steps), desc=side, disable=None):
        start = time.perf_counter()
        optimizer.zero_grad()
        result = model(**given)
        loss = (result - target).square().mean()
        loss.backward()
        if not first:
            first = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            first["output"] = result.detach()
        optimizer.step()
        times.append(time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    torch.save({"first": first, "time": min(times), "memory": memory, "loss": loss.item()}, output)


def compare(arguments):
    """Both sides in processes of their own, and what they differ by."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            output = Path(folder, side)
            command = [sys.executable, __file__, f"--side={side}", f"--output={output}"]
            sizes = [f"--{n}={getattr(arguments, n)}" for n in ("points", "grid", "steps")]
            subprocess.run([*command, *sizes], check=True)
            found[side] = torch.load(output)
    one, other = (found[side]["first"] for side in SIDES)
    largest = max(float((one[n] - other[n]).abs().max() / one[n].abs().max()) for n in one)
    for side, line in SIDES.items():
        time_, memory = found[side]["time"], found[side]["memory"] / 1024
        loss = found[side]["loss"]
        print(f"{line:55} {time_:7.3f} s a step {memory:7.0f} MiB   loss {loss:.6f}")
    print(f"largest difference of output and gradients, by the largest entry: {largest:.1e}")
    return largest, found


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--grid", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.side is None:
        return compare(arguments)
    return run(**vars(arguments))


if __name__ == "__main__":
    main()
