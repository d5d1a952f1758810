"""DimeNet++ against PyTorch Geometric: a training step on forces, and an interaction block.

The original gets precomputed triplets; the drop-in searches neighbours in each step.
"""

import functools

import numpy as np
import torch

from benchmarks.layers.case import Case

SIZES = {
    "hidden_channels": 128,
    "out_channels": 1,
    "num_blocks": 4,
    "int_emb_size": 64,
    "basis_emb_size": 8,
    "out_emb_channels": 256,
    "num_spherical": 7,
    "num_radial": 6,
    "output_initializer": "glorot_orthogonal",
}
"""Sizes of the published models."""
SPACING, CUTOFF = 1.4, 5.0


def molecules(count, atoms, seed=0):
    """Return compact clusters of atoms with the neighbour distances of molecules with hydrogen."""
    rng, points = np.random.default_rng(seed), []
    side = np.arange(int(np.ceil((2 * atoms) ** (1 / 3))) + 1) - 1
    lattice = SPACING * np.stack(np.meshgrid(side, side, side), -1).reshape(-1, 3)
    for _ in range(count):
        nearest = np.argsort((lattice**2).sum(1) + rng.uniform(0, SPACING**2, len(lattice)))
        points.append(lattice[nearest[:atoms]] + 0.15 * rng.standard_normal((atoms, 3)))
    z = torch.from_numpy(rng.choice([1, 6, 7, 8], count * atoms))
    pos = torch.tensor(np.concatenate(points), dtype=torch.float32)
    return z, pos, torch.arange(count).repeat_interleave(atoms)


def models():
    """Return the original and the drop-in with the same weights."""
    import pyops.torch.nn
    from tests.frameworks.torch.nn.dimenet_original import ROUNDED, substituted

    torch.manual_seed(0)
    with substituted(basis=ROUNDED) as dimenet:
        theirs = dimenet.DimeNetPlusPlus(**SIZES)
    ours = pyops.torch.nn.DimeNetPlusPlus(**SIZES, max_num_neighbors=None)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def make_step(count, atoms):
    from tests.frameworks.torch.nn.dimenet_original import edges_within, substituted, triplets

    z, pos, batch = molecules(count, atoms)
    index = edges_within(pos, CUTOFF, batch)
    lists = triplets(index, len(z))
    forces = torch.randn(pos.shape, generator=torch.Generator().manual_seed(1))

    def step(model):
        place = pos.clone().requires_grad_()
        energy = model(z, place, batch)
        (slope,) = torch.autograd.grad(energy.sum(), place, create_graph=True)
        loss = (slope + forces).pow(2).mean() + energy.pow(2).mean()
        gradients = torch.autograd.grad(loss, [*model.parameters()])
        return [energy.detach(), slope.detach(), *gradients]

    def original():
        with substituted(lambda *_, **__: index, lambda *_, **__: lists):
            return step(theirs)

    theirs, ours = models()
    return original, lambda: step(ours)


def make_interaction(count, atoms, on_graph):
    """Return forward and backward of one block, by triplets or, for the drop-in, by the graph."""
    import pyops.torch
    from tests.frameworks.torch.nn.dimenet_original import edges_within, triplets

    z, pos, batch = molecules(count, atoms)
    j, i = edges_within(pos, CUTOFF, batch)
    _, _, idx_i, idx_j, idx_k, kj, ji = triplets(torch.stack([j, i]), len(z))
    theirs, ours = (model.interaction_blocks[0] for model in models())
    basis = models()[0]
    vectors = pos[j] - pos[i]
    dist = vectors.norm(dim=1)
    a, b = pos[idx_j] - pos[idx_k], pos[idx_i] - pos[idx_j]
    angle = torch.atan2(torch.linalg.cross(a, b).norm(dim=1), (a * b).sum(1))
    rbf = basis.rbf(dist).detach()
    graph = pyops.torch.Graph(j, i, len(z), len(z))
    own = pyops.torch.nn.SphericalBasisLayer(SIZES["num_spherical"], SIZES["num_radial"], CUTOFF)
    radial, sbf = own.radial(dist), basis.sbf(dist, angle, kj)
    x = torch.randn(len(i), SIZES["hidden_channels"], generator=torch.Generator().manual_seed(1))

    def run(block, call):
        message = x.clone().requires_grad_()
        y = call(message)
        gradients = torch.autograd.grad(y.pow(2).sum(), [message, *block.parameters()])
        return [y.detach(), *gradients]

    def drop_in(message):
        if on_graph:
            return ours.on_graph(message, rbf, radial, vectors, graph)
        return ours(message, rbf, sbf, kj, ji)

    return (
        lambda: run(theirs, lambda message: theirs(message, rbf, sbf, kj, ji)),
        lambda: run(ours, drop_in),
    )


CASES = [
    Case(
        "DimeNetPlusPlus",
        "force training, 32 molecules of 18 atoms",
        functools.partial(make_step, 32, 18),
    ),
    Case(
        "DimeNetPlusPlus",
        "force training, 4 molecules of 60 atoms",
        functools.partial(make_step, 4, 60),
    ),
    Case(
        "InteractionPPBlock",
        "triplets, 32 molecules of 18 atoms",
        functools.partial(make_interaction, 32, 18, False),
    ),
    Case(
        "InteractionPPBlock",
        "on_graph, 32 molecules of 18 atoms",
        functools.partial(make_interaction, 32, 18, True),
    ),
]
