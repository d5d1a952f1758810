"""Epochs of training on real data; each step has a batch and index tensors of its own.

Molecules are those of ASE's g2 set, rattled, with energies and forces of GFN2-xTB
(examples/forces_data.py). Flows are Darcy's through random media, solved by finite elements, each
on a mesh of its own (examples/darcy_data.py).
"""

import copy
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch_geometric.nn as originals
from torch.nn import GRUCell, Linear, ReLU, Sequential

from benchmarks.layers import dimenet_plus_plus
from benchmarks.layers.case import Case
from pyops.torch import nn as drop_ins

sys.path.append(str(Path(__file__).parents[2] / "examples"))

FRAMES, MOLECULES = 2, 32
"""Frames of each molecule in an epoch, and molecules in a batch."""
MESHES, SPACING, MESHES_IN_BATCH = 8, 1 / 30, 4
WIDTH, DISTANCES, HEADS = 64, 8, 4


def epoch(loss, batches, model):
    """Return a function that trains from the same start.

    It returns the loss of each step and the gradients of the first.
    """
    start = copy.deepcopy(model.state_dict())

    def train():
        model.load_state_dict(start)
        optimizer = torch.optim.Adam(model.parameters(), 1e-4)
        losses, gradients = [], []
        for batch in batches:
            optimizer.zero_grad()
            value = loss(model, *(tensor.clone() for tensor in batch))
            value.backward()
            if not losses:
                every = [p.grad for p in model.parameters()]
                gradients = [gradient.clone() for gradient in every if gradient is not None]
            optimizer.step()
            losses.append(value.detach())
        return [torch.stack(losses), *gradients]

    return train


def epochs(models, loss, batches):
    """Return the epochs of the original and the drop-in, with the same weights."""
    models[1].load_state_dict(models[0].state_dict())
    return tuple(epoch(loss, batches, model) for model in models)


def batched(graphs, size):
    """Batch graphs: joined edges, the other tensors, and the graph of each node.

    A graph is its number of nodes, its edges, and tensors with a row for each node, edge or graph.
    """
    order, batches = np.random.default_rng(0).permutation(len(graphs)), []
    for first in range(0, len(graphs) - size + 1, size):
        chosen = [graphs[number] for number in order[first : first + size]]
        counts, edges, *others = zip(*chosen, strict=True)
        starts = np.cumsum([0, *counts[:-1]])
        joined = torch.cat([e + int(s) for e, s in zip(edges, starts, strict=True)], 1)
        owner = torch.arange(size).repeat_interleave(torch.tensor(counts))
        batches.append((joined, *map(torch.cat, others), owner))
    return batches


def molecules():
    """Return batches of all pairs of atoms with kinds, positions, forces and energies."""
    from forces_data import AtomEnergies, make_structures

    graphs, structures = [], make_structures(FRAMES)
    of_atoms = AtomEnergies(structures)
    for s in structures:
        pairs = (1 - torch.eye(len(s.kinds))).nonzero().T
        rows = [torch.tensor(values).float() for values in (s.positions, s.forces)]
        energy = torch.tensor([s.energy - of_atoms(s)]).float()
        graphs.append((len(s.kinds), pairs, torch.tensor(s.kinds), *rows, energy))
    return batched(graphs, MOLECULES)


class MessagePassing(torch.nn.Module):
    """The network of Gilmer et al. (2017) with a sum over atoms at its end."""

    def __init__(self, package):
        super().__init__()
        self.kinds = torch.nn.Embedding(4, WIDTH)
        network = Sequential(Linear(DISTANCES, 128), ReLU(), Linear(128, WIDTH**2))
        self.message = package.NNConv(WIDTH, WIDTH, network, aggr="mean")
        self.update = GRUCell(WIDTH, WIDTH)
        self.out = Sequential(Linear(WIDTH, WIDTH), ReLU(), Linear(WIDTH, 1))
        self.register_buffer("centres", torch.linspace(0.5, 5, DISTANCES))

    def forward(self, pairs, kinds, positions, owner):
        distances = (positions[pairs[0]] - positions[pairs[1]]).norm(dim=1, keepdim=True)
        features, x = (-(distances - self.centres).square()).exp(), self.kinds(kinds)
        for _ in range(3):
            x = self.update(self.message(x, pairs, features).relu(), x)
        return x.new_zeros(MOLECULES).index_add(0, owner, self.out(x)[:, 0])


def energies():
    def loss(model, pairs, kinds, positions, _, energy, owner):
        return (model(pairs, kinds, positions, owner) - energy).square().mean()

    return epochs([MessagePassing(p) for p in (originals, drop_ins)], loss, molecules())


def forces():
    """Return both sides; edges and triplets of the original are precomputed."""
    from tests.frameworks.torch.nn.dimenet_original import edges_within, substituted, triplets

    numbers, batches = torch.tensor([1, 6, 7, 8]), []
    for _, kinds, positions, wanted, energy, owner in molecules():
        edges = edges_within(positions, dimenet_plus_plus.CUTOFF, owner)
        lists = triplets(edges, len(kinds))
        batches.append((numbers[kinds], positions, wanted, energy, owner, edges, *lists))

    def loss(model, z, positions, wanted, energy, owner, edges, *lists):
        positions.requires_grad_()
        with substituted(lambda *_, **__: edges, lambda *_, **__: lists):
            found = model(z, positions, owner)[:, 0]
        (slope,) = torch.autograd.grad(found.sum(), positions, create_graph=True)
        return (slope + wanted).square().mean() + (found - energy).square().mean()

    return epochs(dimenet_plus_plus.models(), loss, batches)


def flows(count):
    """Yield a Darcy flow on each of several meshes: facets, points, inputs and solutions."""
    from darcy_data import draw_fields, make_mesh, solve_flows

    fields = draw_fields(count, seed=0)
    for number in range(count):
        flow = solve_flows(make_mesh(SPACING, number), fields[number : number + 1])
        inputs = np.stack([flow.log_a[0], 50 * flow.even], 1)
        rows = flow.points, inputs, 50 * flow.u.T
        yield flow.mesh.facets, *(torch.tensor(values).float() for values in rows)


class Attention(torch.nn.Module):
    """Three layers of attention along the edges of a mesh."""

    def __init__(self, layer):
        super().__init__()
        widths = [4, *[HEADS * WIDTH] * 3]
        self.layers = torch.nn.ModuleList(layer(width, WIDTH, heads=HEADS) for width in widths[:3])
        self.out = Linear(HEADS * WIDTH, 1)

    def forward(self, edges, x):
        for layer in self.layers:
            x = torch.nn.functional.elu(layer(x, edges))
        return self.out(x)


def attention(name):
    graphs = []
    for facets, points, inputs, solution in flows(MESHES):
        ends = torch.tensor(np.hstack([facets, facets[::-1]])).long()
        graphs.append((len(points), ends, torch.cat([points, inputs], 1), solution))

    def loss(model, edges, inputs, solution, _):
        return (model(edges, inputs) - solution).square().mean()

    models = [Attention(getattr(package, name)) for package in (originals, drop_ins)]
    return epochs(models, loss, batched(graphs, MESHES_IN_BATCH))


def geometry_informed():
    """Both sides of GINO of neuraloperator, whose layer GNOBlock is exchanged."""
    from neuralop.models import gino

    def model():
        return gino.GINO(
            in_channels=2,
            out_channels=1,
            gno_coord_dim=2,
            in_gno_radius=0.1,
            out_gno_radius=0.1,
            gno_use_torch_scatter=False,
            gno_use_open3d=False,
            fno_in_channels=2,
            fno_n_modes=(12, 12),
            fno_hidden_channels=WIDTH,
        )

    theirs = model()
    with mock.patch.object(gino, "GNOBlock", drop_ins.GNOBlock):
        ours = model()
    axis = torch.linspace(0, 1, 32)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)

    def loss(model, points, inputs, solution):
        found = model(points[None], grid[None], points[None], x=inputs[None])
        return (found[0] - solution).square().mean()

    return epochs([theirs, ours], loss, [rows for _, *rows in flows(MESHES_IN_BATCH)])


OF_MOLECULES = f"epoch by {MOLECULES} molecules of g2"
OF_MESHES = f"epoch by {MESHES_IN_BATCH} meshes, Darcy flow"
CASES = [
    Case("DimeNetPlusPlus", f"{OF_MOLECULES}, forces", forces),
    Case("NNConv", f"{OF_MOLECULES}, energies", energies),
    Case("GATConv", OF_MESHES, partial(attention, "GATConv")),
    Case("GATv2Conv", OF_MESHES, partial(attention, "GATv2Conv")),
    Case("TransformerConv", OF_MESHES, partial(attention, "TransformerConv")),
    Case("GNOBlock", f"GINO, epoch of {MESHES_IN_BATCH} meshes, Darcy flow", geometry_informed),
]
