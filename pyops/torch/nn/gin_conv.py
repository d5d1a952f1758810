"""Replacement for PyTorch Geometric's `GINConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ._aggregating import Aggregating
from ._linear import reset

if TYPE_CHECKING:
    from ._edges.edge_index import EdgeIndex
    from ._messages import Aggr, Flow, Pair, Size


class GINConv(Aggregating):
    r"""Graph isomorphism layer, a replacement for PyTorch Geometric's ``GINConv``.

    .. math:: x'_i = h\bigl((1 + \epsilon) x_i + \operatorname{aggr}_{j \in N(i)} x_j\bigr)

    Parameters
    ----------
    nn : torch.nn.Module
        The network h.
    eps : float
        Initial value of epsilon.
    train_eps : bool
        Whether epsilon is a parameter, not a buffer.
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
        Keyword only.
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Xu et al., How powerful are graph neural networks?, arXiv:1810.00826.
    """

    eps: Tensor

    def __init__(
        self,
        nn: torch.nn.Module,
        eps: float = 0.0,
        train_eps: bool = False,
        *,
        aggr: Aggr = "add",
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        super().__init__(aggr, flow, kwargs)
        self.nn = nn
        self.initial_eps = eps
        if train_eps:
            self.eps = torch.nn.Parameter(torch.empty(1))
        else:
            self.register_buffer("eps", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize epsilon and the network anew."""
        super().reset_parameters()
        reset(self.nn)
        self.eps.data.fill_(self.initial_eps)

    def forward(self, x: Tensor | Pair, edge_index: EdgeIndex, size: Size = None) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor or None)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`. The values of a sparse matrix are edge weights.
        size : (int, int), optional
            Numbers of sources and destinations.
        """
        left, right = self._pair(x)
        out = self._neighbours((left, right), edge_index, size)
        if right is not None:
            out = out + (1 + self.eps) * right
        result: Tensor = self.nn(out)
        return result

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return f"{type(self).__name__}(nn={self.nn})"
