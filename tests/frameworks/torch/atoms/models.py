"""Small models of molecules and crystals, and atoms for them."""

import numpy as np
import torch

from pyops.torch import nn

CUTOFF = 4.0
SIZES = {"int_emb_size": 4, "basis_emb_size": 3, "out_emb_channels": 6}
SIZES |= {"num_spherical": 3, "num_radial": 2, "output_initializer": "glorot_orthogonal"}
ANY = {"cutoff": CUTOFF, "max_num_neighbors": None}
MODELS = {
    "DimeNetPlusPlus": lambda: nn.DimeNetPlusPlus(8, 1, 1, **SIZES, **ANY),
    "SchNet": lambda: nn.SchNet(8, 6, 1, 5, **ANY),
}


def model(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


def crystal(seed=0, atoms=3):
    """Return numbers, positions and a cell that is smaller than the cutoff."""
    rng = np.random.default_rng(seed)
    cell = np.diag([2.6, 3.2, 3.9]) + 0.3 * rng.standard_normal((3, 3))
    places = (np.arange(atoms)[:, None] + rng.uniform(0, 0.3, (atoms, 3))) / atoms
    return torch.arange(atoms) % 3 + 6, torch.tensor(places @ cell), torch.tensor(cell)


def repeated(z, pos, cell, along, times=2):
    """Return a supercell."""
    shifts = torch.arange(times).repeat_interleave(len(z))
    larger = cell.clone()
    larger[along] *= times
    return z.repeat(times), pos.repeat(times, 1) + shifts[:, None] * cell[along], larger


def batched(*examples):
    """Return numbers, positions, batch and cells of several examples."""
    z, pos, cells = zip(*examples, strict=True)
    owner = torch.arange(len(z)).repeat_interleave(torch.tensor([len(own) for own in z]))
    return torch.cat(z), torch.cat(pos), owner, torch.stack(cells)
