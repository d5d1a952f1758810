"""Replacement for PyTorch Geometric's `InteractionBlock` of SchNet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import Linear, Sequential

from .cf_conv import CFConv
from .shifted_softplus import ShiftedSoftplus

if TYPE_CHECKING:
    from torch import Tensor

    from ._edges.edge_index import EdgeIndex


class InteractionBlock(torch.nn.Module):
    """Interaction block of SchNet, as `torch_geometric.nn.models.schnet.InteractionBlock`.

    Parameters
    ----------
    hidden_channels : int
        Width of the features of atoms.
    num_gaussians : int
        Number of edge features.
    num_filters : int
        Width of the filters.
    cutoff : float
        Distance from which filters are 0.
    """

    def __init__(
        self, hidden_channels: int, num_gaussians: int, num_filters: int, cutoff: float
    ) -> None:
        super().__init__()
        self.mlp = Sequential(
            Linear(num_gaussians, num_filters),
            ShiftedSoftplus(),
            Linear(num_filters, num_filters),
        )
        self.conv = CFConv(hidden_channels, hidden_channels, num_filters, self.mlp, cutoff)
        self.act = ShiftedSoftplus()
        self.lin = Linear(hidden_channels, hidden_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights at random, and biases with 0."""
        first, _, second = self.mlp
        reset(first)
        reset(second)
        self.conv.reset_parameters()
        reset(self.lin)

    def forward(
        self, x: Tensor, edge_index: EdgeIndex, edge_weight: Tensor, edge_attr: Tensor
    ) -> Tensor:
        """Return what the block adds to the features of the atoms.

        Parameters
        ----------
        x : tensor, shape (num_atoms, hidden_channels)
            Features of the atoms.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_weight : tensor, shape (num_edges,)
            Length of each edge.
        edge_attr : tensor, shape (num_edges, num_gaussians)
            Features of the edges.
        """
        added: Tensor = self.lin(self.act(self.conv(x, edge_index, edge_weight, edge_attr)))
        return added


def reset(linear: torch.nn.Module) -> None:
    """Initialize the weight of a linear layer at random, and its bias with 0."""
    assert isinstance(linear, Linear)
    torch.nn.init.xavier_uniform_(linear.weight)
    linear.bias.data.fill_(0)
