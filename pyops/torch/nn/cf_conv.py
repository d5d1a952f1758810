"""Replacement for the `CFConv` of PyTorch Geometric's SchNet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ... import torch as _ops
from ._edges.edge_index import check_device
from ._messages import Messages
from ._reductions import reduced_by_torch

if TYPE_CHECKING:
    from torch import Tensor

    from ._edges.edge_index import EdgeIndex


class CFConv(Messages):
    r"""Continuous-filter convolution, a replacement for ``CFConv`` of PyTorch Geometric's SchNet.

    .. math::

        x'_i = W_2 \sum_{j \in N(i)} c(d_{ij})\, h(f_{ij}) \odot W_1 x_j + b, \qquad
        c(d) = \tfrac{1}{2} \bigl(\cos(\pi d / \text{cutoff}) + 1\bigr)

    Parameters
    ----------
    in_channels, out_channels, num_filters : int
    nn : torch.nn.Module
        The network h: maps edge features to ``num_filters`` elements.
    cutoff : float

    References
    ----------
    Schuett et al., SchNet: a continuous-filter convolutional neural network for modeling quantum
    interactions, arXiv:1706.08566.
    """

    _takes_pairs = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_filters: int,
        nn: torch.nn.Module,
        cutoff: float,
    ) -> None:
        super().__init__("add", "source_to_target", {})
        self.lin1 = torch.nn.Linear(in_channels, num_filters, bias=False)
        self.lin2 = torch.nn.Linear(num_filters, out_channels)
        self.nn = nn
        self.cutoff = cutoff
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the linear layers anew, not the network."""
        for linear in self.lin1, self.lin2:
            torch.nn.init.xavier_uniform_(linear.weight)
        self.lin2.bias.data.zero_()

    def forward(
        self, x: Tensor, edge_index: EdgeIndex, edge_weight: Tensor, edge_attr: Tensor
    ) -> Tensor:
        """Return the new features of the nodes.

        Parameters
        ----------
        x : tensor
            Features of the nodes.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_weight : tensor
            Length d of each edge.
        edge_attr : tensor
            Features of the edges.
        """
        rows, _ = self._pair(x)
        ends = rows.shape[0], rows.shape[0]
        route = "neighbours", self.lin1.out_features
        edges = self._edges(edge_index, ends, None, None, rows, route)
        features = edges.features(self._label, edge_attr, 0.0)
        if features is None:
            raise ValueError(f"{self._label}: edge_attr: expected features of the edges, got None")
        lengths = check_device(f"{self._label}: edge_weight", edge_weight, rows.device).view(-1)
        if lengths.shape[0] != edges.given:
            raise ValueError(
                f"{self._label}: edge_weight: expected {edges.given} lengths, one for each edge, "
                f"got {lengths.shape[0]}"
            )
        factors = 0.5 * (torch.cos(lengths * math.pi / self.cutoff) + 1.0)
        filters = self.nn(features) * factors.unsqueeze(1)
        rows = self._applied("x", self.lin1, rows)
        if edges.graph is None:
            messages = rows.index_select(0, edges.src) * filters
            dst = edges.dst.long()
            out = reduced_by_torch(self._label, messages, dst, 0, edges.num_dst, "sum")
        else:
            messages = _ops.edge_update(edges.graph, rows) * filters
            out = _ops.aggregate(edges.graph, None, messages)
        result: Tensor = self.lin2(out)
        return result

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return f"{type(self).__name__}()"
