"""DimeNet++ of PyTorch Geometric, with replacements for packages without wheels."""

import functools
import itertools
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import spherical_jn
from torch_geometric.nn.models import dimenet, dimenet_utils

ROUNDED = functools.cache(dimenet_utils.bessel_basis)
"""Basis functions of the original as released: the zeros are rounded to float32."""


def zeros(degrees, count):
    """Return float64 zeros of spherical Bessel functions; those of adjacent degrees interlace."""
    rows, between = [], np.pi * np.arange(1, degrees + count)
    for degree in range(degrees):
        if degree:
            function = functools.partial(spherical_jn, degree)
            pairs = itertools.pairwise(between)
            between = np.array([brentq(function, a, b, xtol=1e-15, rtol=1e-15) for a, b in pairs])
        rows.append(between[:count])
    return np.array(rows)


@functools.cache
def exact(degrees, count):
    """Return the same formula in float64, by a faster recurrence."""
    with (
        mock.patch.object(dimenet_utils, "Jn_zeros", zeros),
        mock.patch.object(dimenet_utils.sym, "simplify", dimenet_utils.sym.expand),
    ):
        return ROUNDED.__wrapped__(degrees, count)


def edges_within(pos, r, batch=None, max_num_neighbors=32):
    pos = pos.detach()
    near = (pos[:, None] - pos).pow(2).sum(-1) < r * r
    if batch is not None:
        near &= batch[:, None] == batch
    near.fill_diagonal_(False)
    i, j = near.nonzero().T
    return torch.stack([j, i])


def triplets(edge_index, num_nodes):
    """Return the pairs of consecutive edges, excluding each edge and its reverse."""
    j, i = edge_index
    order = torch.argsort(i, stable=True)
    counts = torch.bincount(i, minlength=num_nodes)
    starts = counts.cumsum(0) - counts
    many = counts[j]
    ji = torch.arange(len(j)).repeat_interleave(many)
    turn = torch.arange(len(ji)) - (many.cumsum(0) - many).repeat_interleave(many)
    kj = order[starts[j[ji]] + turn]
    kept = j[kj] != i[ji]
    ji, kj = ji[kept], kj[kept]
    return i, j, i[ji], j[ji], j[kj], kj, ji


@contextmanager
def substituted(edges=edges_within, lists=triplets, basis=exact):
    """Substitute the search for neighbours and triplets of the original."""
    with (
        mock.patch.object(dimenet, "radius_graph", edges),
        mock.patch.object(dimenet, "triplets", lists),
        mock.patch.object(dimenet_utils, "bessel_basis", basis),
    ):
        yield dimenet
