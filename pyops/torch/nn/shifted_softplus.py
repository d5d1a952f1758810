"""Replacement for PyTorch Geometric's `ShiftedSoftplus`."""

from __future__ import annotations

import torch
from torch import Tensor


class ShiftedSoftplus(torch.nn.Module):
    """Softplus less log 2, 0 at 0, as `torch_geometric.nn.models.schnet.ShiftedSoftplus`."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.log(torch.tensor(2.0)).item()

    def forward(self, x: Tensor) -> Tensor:
        """Return ``log(1 + exp(x)) - log(2)``, of the shape of x."""
        return torch.nn.functional.softplus(x) - self.shift
