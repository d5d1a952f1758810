"""Replacement for PyTorch Geometric's `ResidualLayer`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Linear

from ._dimenet import Activation, reset


class ResidualLayer(torch.nn.Module):
    """Residual block of two layers, as `torch_geometric.nn.models.dimenet.ResidualLayer`.

    Parameters
    ----------
    hidden_channels : int
        Width.
    act : callable
        Activation.
    """

    def __init__(self, hidden_channels: int, act: Activation) -> None:
        super().__init__()
        self.act = act
        self.lin1 = Linear(hidden_channels, hidden_channels)
        self.lin2 = Linear(hidden_channels, hidden_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights at random, and biases with 0."""
        reset(self.lin1)
        reset(self.lin2)

    def forward(self, x: Tensor) -> Tensor:
        """Return x plus the output of both layers, of the shape of x."""
        return x + self.act(self.lin2(self.act(self.lin1(x))))
