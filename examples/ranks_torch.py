"""Graph neural operator on a mesh of which each rank makes its own part, in PyTorch.

The operator learns to smooth random fields on the points of a square: to one step of the heat
equation. A rank makes the points of its strip of the square and the edges into them; it sees no
other points. Features of neighbours on other ranks are fetched by the operator, and gradients of
parameters are sums over ranks, so the losses are the same on any number of ranks.

    python examples/ranks_torch.py
    torchrun --nproc-per-node 2 examples/ranks_torch.py
"""

import os

import numpy as np
import torch
import torch.distributed as dist

import pyops.torch.nn
from pyops.distributed import Communicator

SIDE, RADIUS, WIDTH, STEPS = 24, 0.1, 16, 30


class Operator(torch.nn.Module):
    """Lifting, two kernel integrals with residuals, projection."""

    def __init__(self):
        super().__init__()
        self.lift, self.project = torch.nn.Linear(1, 4), torch.nn.Linear(4, 1)
        kernels = [torch.nn.Linear(3, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, 16)]
        self.integrals = torch.nn.ModuleList(
            pyops.torch.nn.NNConv(4, 4, torch.nn.Sequential(*kernels), aggr="mean") for _ in "12"
        )

    def forward(self, field, graph, offsets):
        x = self.lift(field)
        for integral in self.integrals:
            x = x + torch.nn.functional.gelu(integral(x, graph, offsets))
        return self.project(x)


def strip(comm):
    """Return the distributed graph of a mesh, its own points, and the offsets along own edges."""
    first, last = (SIDE * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    reach = int(RADIUS * SIDE)
    steps = np.arange(-reach, reach + 1)
    near = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)
    near = near[(near**2).sum(1) <= (RADIUS * SIDE) ** 2]
    own = np.stack(np.meshgrid(np.arange(first, last), np.arange(SIDE), indexing="ij"), -1)
    own = own.reshape(-1, 2)
    neighbours = own[:, None] + near
    inside = ((neighbours >= 0) & (neighbours < SIDE)).all(2)
    src = (neighbours @ [SIDE, 1])[inside]
    dst = np.repeat(own @ [SIDE, 1], inside.sum(1))
    graph = comm.graph(src, dst, owned=(first * SIDE, last * SIDE))
    points = torch.tensor((own + 0.5) / SIDE)
    ghosts = graph.exchange(points)
    src, dst = (
        torch.tensor(ends, dtype=torch.int64) for ends in (graph.local.src, graph.local.dst)
    )
    offsets = (ghosts[src] - points[dst]) / RADIUS
    return graph, points, torch.cat([offsets, offsets.norm(dim=1, keepdim=True)], 1)


def fields(points, generator):
    """Return a random field at some points, and the field a moment later."""
    waves = torch.arange(1.0, 5.0, dtype=torch.float64)
    amplitudes = torch.randn(4, 4, generator=generator, dtype=torch.float64) / 2
    decay = torch.exp(-0.02 * (waves[:, None] ** 2 + waves**2))
    along = [torch.cos(np.pi * points[:, axis, None] * waves) for axis in (0, 1)]
    before, after = (
        torch.einsum("na,ab,nb->n", along[0], some, along[1])[:, None]
        for some in (amplitudes, amplitudes * decay)
    )
    return before, after


def main():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    comm = Communicator(dist.group.WORLD)
    graph, points, offsets = strip(comm)
    torch.manual_seed(0)  # the same parameters on all ranks
    model = pyops.torch.nn.Replicated(Operator().double(), comm)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    nodes = comm.sum(graph.num_dst)
    generator = torch.Generator().manual_seed(1)  # the same field on all ranks
    for step in range(STEPS):
        before, after = fields(points, generator)
        errors = model(before, graph, offsets) - after
        loss = errors.square().sum() / nodes  # the rank's share of a mean over all nodes
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total = comm.sum(loss.detach())
        if comm.rank == 0 and step % 10 == 9:
            print(f"step {step + 1:3}: mean squared error {float(total):.8f}")
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
