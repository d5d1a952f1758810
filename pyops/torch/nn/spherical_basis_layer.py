"""Replacement for PyTorch Geometric's `SphericalBasisLayer`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import pyops.torch as pt

from .._host import without_subclass
from ._dimenet import Envelope


class SphericalBasisLayer(torch.nn.Module):
    r"""Spherical basis of DimeNet, as `torch_geometric.nn.models.dimenet.SphericalBasisLayer`.

    The formula is that of `pyops.spherical_basis` times :math:`Y_l = \sqrt{(2l+1)/4\pi}\,
    P_l(\cos\alpha)`. The zeros and norms of the Bessel functions have full float64 precision; the
    original rounds them to float32, so in float64 it differs by about 1e-7.

    Parameters
    ----------
    num_spherical : int
        Number of degrees, up to 16.
    num_radial : int
        Number of zeros for each degree, up to 64.
    cutoff : float
        Distance from which all functions are 0.
    envelope_exponent : int
        Exponent of the envelope, from 1 to 32.
    """

    def __init__(
        self,
        num_spherical: int,
        num_radial: int,
        cutoff: float = 5.0,
        envelope_exponent: int = 5,
    ) -> None:
        super().__init__()
        sizes = ("num_spherical", num_spherical, 16), ("num_radial", num_radial, 64)
        for name, value, most in sizes:
            if not 1 <= value <= most:
                raise ValueError(f"SphericalBasisLayer: {name}: expected 1 to {most}, got {value}")
        self.num_spherical = num_spherical
        self.num_radial = num_radial
        self.cutoff = cutoff
        self.envelope = Envelope(envelope_exponent)
        self.exponent = envelope_exponent

    def radial(self, dist: Tensor) -> Tensor:
        """Return the radial factor of each edge, [num_edges, num_spherical * num_radial]."""
        part: Tensor = pt.spherical_basis(
            dist / self.cutoff,
            num_spherical=self.num_spherical,
            num_radial=self.num_radial,
            exponent=self.exponent,
        )
        return part

    def forward(self, dist: Tensor, angle: Tensor, idx_kj: Tensor) -> Tensor:
        """Return the basis of triplets with angles `angle` and the distances of edges `idx_kj`."""
        c = angle.cos()
        legendre = [torch.ones_like(c), c]
        for n in range(2, self.num_spherical):
            legendre.append(((2 * n - 1) * c * legendre[-1] - (n - 1) * legendre[-2]) / n)
        harmonics = torch.stack(
            [math.sqrt((2 * n + 1) / (4 * math.pi)) * p for n, p in enumerate(legendre)], 1
        )[:, : self.num_spherical]
        part = self.radial(dist).index_select(0, without_subclass(idx_kj))
        parts = part.view(-1, self.num_spherical, self.num_radial)
        return (parts * harmonics.unsqueeze(2)).flatten(1)
