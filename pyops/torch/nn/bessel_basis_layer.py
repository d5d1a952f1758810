"""Replacement for PyTorch Geometric's `BesselBasisLayer`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import pyops.torch as pt

from ._dimenet import Envelope


class BesselBasisLayer(torch.nn.Module):
    r"""Radial basis of DimeNet, as `torch_geometric.nn.models.dimenet.BesselBasisLayer`.

    The formula is that of `pyops.radial_basis`; a distance of 0 has basis 0, not infinity.

    Parameters
    ----------
    num_radial : int
        Number of functions.
    cutoff : float
        Distance from which all functions are 0.
    envelope_exponent : int
        Exponent of the envelope, from 1 to 32.
    """

    def __init__(self, num_radial: int, cutoff: float = 5.0, envelope_exponent: int = 5) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.envelope = Envelope(envelope_exponent)
        self.exponent = envelope_exponent
        self.freq = torch.nn.Parameter(torch.empty(num_radial))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the frequencies to pi, 2 pi, ..."""
        with torch.no_grad():
            torch.arange(1, self.freq.numel() + 1, out=self.freq).mul_(math.pi)
        self.freq.requires_grad_()

    def forward(self, dist: Tensor) -> Tensor:
        """Return the basis of distances of any shape, along an additional last axis."""
        rbf: Tensor = pt.radial_basis(
            dist.flatten() / self.cutoff, self.freq, exponent=self.exponent
        )
        return rbf if dist.dim() == 1 else rbf.unflatten(0, dist.shape)
