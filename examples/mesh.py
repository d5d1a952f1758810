"""MeshGraphNet learns a vortex street on an unstructured mesh, and goes on alone.

A lattice Boltzmann solver makes the flow, of which the nodes of a mesh of triangles keep the
velocity. Fifteen pairs of edge and node updates predict its change until the next frame; then the
network is given its own predictions, over times that it was not trained on. Each edge update is a
network of the edge and its two nodes, of which pyops keeps no hidden layers: those of all edges in
fifteen blocks would be most of the memory.

    python examples/mesh.py       four minutes on two cores; the picture is in results/
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from mesh_data import INSIDE, OUTLET, Channel, make_mesh, sample, simulate
from mesh_figure import draw
from torch.nn import LayerNorm, Linear, ReLU, Sequential
from tqdm import trange

import pyops
from pyops.torch.nn import MeshGraphNetProcessor

RATE, NOISE, EACH_PERIOD = 2e-3, 0.02, 20


class MeshGraphNet(torch.nn.Module):
    """Encoders of nodes and edges, their updates in turn, and a decoder of the nodes."""

    def __init__(self, node_width, edge_width, width, blocks):
        super().__init__()
        self.nodes, self.edges = network(node_width, width), network(edge_width, width)
        self.processor = MeshGraphNetProcessor(blocks, width, width)
        self.decoder = Sequential(*network(width, width)[:2], Linear(width, 2))

    def forward(self, nodes, edges, graph):
        return self.decoder(self.processor(self.nodes(nodes), self.edges(edges), graph))


def network(inward, width):
    return Sequential(Linear(inward, width), ReLU(), Linear(width, width), LayerNorm(width))


class Problem:
    """The mesh as a graph, and what the network is given of a flow on it."""

    def __init__(self, mesh, flow):
        host = pyops.Graph.from_cells(mesh.cells, len(mesh.points))
        self.graph = pyops.torch.Graph(host.src, host.dst, num_src=host.num_src)
        offset = (mesh.points[host.src] - mesh.points[host.dst]) / 4
        length = np.linalg.norm(offset, axis=1, keepdims=True)
        self.edges = torch.tensor(np.hstack([offset, length]), dtype=torch.float32)
        self.kinds = torch.nn.functional.one_hot(torch.tensor(mesh.kinds), 4).float()
        self.free = torch.tensor(np.isin(mesh.kinds, [INSIDE, OUTLET]))
        self.flow = torch.tensor(flow, dtype=torch.float32)
        self.change = (self.flow[1:] - self.flow[:-1])[:, self.free].std()

    def step(self, model, velocity):
        """Return the velocity one frame later; on the inlet and the cylinder it stays."""
        change = model(torch.cat([velocity, self.kinds], 1), self.edges, self.graph)
        return velocity + self.change * change * self.free[:, None]

    def rollout(self, model, start, frames):
        velocities = [self.flow[start]]
        with torch.no_grad():
            for _ in range(frames):
                velocities.append(self.step(model, velocities[-1]))
        return torch.stack(velocities)

    def error(self, predicted, true):
        """Return the error of each frame relative to the size of the fluctuations."""
        off, fluctuation = ((a - true)[:, self.free] for a in (predicted, true.mean(0)))
        return off.square().mean((1, 2)).sqrt() / fluctuation.square().mean().sqrt()


def train(problem, model, frames, steps, seed=0):
    """Adam on single steps, from velocities with noise that the step has to remove."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    losses, free = [], problem.free[:, None]
    for _ in (bar := trange(steps, desc="training", dynamic_ncols=True)):
        frame = int(rng.integers(frames - 1))
        before, after = problem.flow[frame], problem.flow[frame + 1]
        noisy = before + NOISE * free * torch.randn(before.shape)
        off = (problem.step(model, noisy) - after)[problem.free] / problem.change
        loss = off.square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        bar.set_postfix_str(f"loss {np.mean(losses[-20:]):.3f}")
    return losses


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=180, help="cells of the solver along")
    parser.add_argument("--spacing", type=float, default=3.0, help="of nodes, in cells")
    parser.add_argument("--periods", type=int, default=8, help="of the shedding, for training")
    parser.add_argument("--warm-up", type=int, default=9, help="periods until it is regular")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--output", type=Path, default=Path("results/mesh.png"))
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    channel = Channel(options.length, options.length * 4 // 11, options.length / 15)
    training, held_out = options.periods * EACH_PERIOD, 2 * EACH_PERIOD
    flow = simulate(channel, training + held_out + 1, EACH_PERIOD, options.warm_up)
    mesh = make_mesh(channel, options.spacing)
    problem = Problem(mesh, sample(mesh, flow))
    model = MeshGraphNet(6, 3, options.width, options.blocks)
    start = time.perf_counter()
    losses = train(problem, model, training, options.steps)
    each = (time.perf_counter() - start) / options.steps
    predicted = problem.rollout(model, training, held_out)
    true = problem.flow[training:]
    errors = {
        "MeshGraphNet": problem.error(predicted, true),
        "first frame": problem.error(true[:1], true),
        "mean of the training": problem.error(problem.flow[:training].mean(0), true),
    }
    print(f"{len(mesh.points)} nodes, {problem.graph.num_edges} edges, {1000 * each:.0f} ms a step")
    print("error relative to the fluctuations, mean over one period and over two")
    for name, error in errors.items():
        one, two = (float(error[1 : 1 + n].mean()) for n in (EACH_PERIOD, held_out))
        print(f"{name:22} {one:.2f} {two:.2f}")
    draw(options.output, mesh, true.numpy(), predicted.numpy(), losses, errors, EACH_PERIOD)
    print(f"picture in {options.output}")
    return {name: float(error[1:].mean()) for name, error in errors.items()}


if __name__ == "__main__":
    main()
