"""Replacement for PyTorch Geometric's `EmbeddingBlock`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Embedding, Linear

from .._host import without_subclass
from ._linear import is_linear

if TYPE_CHECKING:
    from ._dimenet import Activation


class EmbeddingBlock(torch.nn.Module):
    """Initial messages of DimeNet, as `torch_geometric.nn.models.dimenet.EmbeddingBlock`.

    The part of the last layer that acts on atom embeddings is applied per atom, not per edge.

    Parameters
    ----------
    num_radial : int
        Number of radial functions.
    hidden_channels : int
        Width of the messages.
    act : callable
        Activation.
    """

    def __init__(self, num_radial: int, hidden_channels: int, act: Activation) -> None:
        super().__init__()
        self.act = act
        self.emb = Embedding(95, hidden_channels)
        self.lin_rbf = Linear(num_radial, hidden_channels)
        self.lin = Linear(3 * hidden_channels, hidden_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all weights."""
        self.emb.weight.data.uniform_(-math.sqrt(3), math.sqrt(3))
        self.lin_rbf.reset_parameters()
        self.lin.reset_parameters()

    def forward(self, x: Tensor, rbf: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Return the messages of edges j -> i between atoms with atomic numbers x."""
        x, i, j = map(without_subclass, (x, i, j))
        atoms = self.emb(x)
        if not is_linear(self.lin):
            parts = atoms.index_select(0, i), atoms.index_select(0, j), self.act(self.lin_rbf(rbf))
            return self.act(self.lin(torch.cat(parts, 1)))
        own, other, radial = self.lin.weight.chunk(3, 1)
        ends = (atoms @ own.T).index_select(0, i) + (atoms @ other.T).index_select(0, j)
        rbf = self.act(self.lin_rbf(rbf))
        ends = ends if self.lin.bias is None else ends + self.lin.bias
        return self.act(torch.addmm(ends, rbf, radial.T))
