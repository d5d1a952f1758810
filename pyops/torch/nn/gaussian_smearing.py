"""Replacement for PyTorch Geometric's `GaussianSmearing`."""

from __future__ import annotations

import torch
from torch import Tensor


class GaussianSmearing(torch.nn.Module):
    """Gaussians of distances, as `torch_geometric.nn.models.schnet.GaussianSmearing`.

    Parameters
    ----------
    start, stop : float
        Centres of the first and of the last Gaussian.
    num_gaussians : int
        Number of Gaussians, at least 2; their width is the distance between centres.
    """

    offset: Tensor

    def __init__(self, start: float = 0.0, stop: float = 5.0, num_gaussians: int = 50) -> None:
        super().__init__()
        if num_gaussians < 2:
            raise ValueError(
                f"GaussianSmearing: num_gaussians: expected at least 2, got {num_gaussians}"
            )
        offset = torch.linspace(start, stop, num_gaussians)
        self.coeff = -0.5 / (offset[1] - offset[0]).item() ** 2
        self.register_buffer("offset", offset)

    def forward(self, dist: Tensor) -> Tensor:
        """Return a row of Gaussians for each distance, [num_edges, num_gaussians]."""
        return torch.exp(self.coeff * (dist.view(-1, 1) - self.offset.view(1, -1)).pow(2))
