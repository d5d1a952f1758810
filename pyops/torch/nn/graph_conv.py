"""Replacement for PyTorch Geometric's `GraphConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._aggregating import Aggregating
from ._linear import Linear

if TYPE_CHECKING:
    from torch import Tensor

    from ._edges.edge_index import EdgeIndex
    from ._messages import Aggr, Flow, Pair, Size


class GraphConv(Aggregating):
    r"""Graph layer with edge weights, a replacement for PyTorch Geometric's ``GraphConv``.

    .. math:: x'_i = W_1 x_i + W_2 \operatorname{aggr}_{j \in N(i)} w_{ij} x_j

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the features, or of those of sources and destinations; -1 to infer it at first use.
    out_channels : int
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
    bias : bool
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Morris et al., Weisfeiler and Leman go neural: higher-order graph neural networks,
    arXiv:1810.02244.
    """

    _weighted = True

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: Aggr = "add",
        bias: bool = True,
        *,
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        super().__init__(aggr, flow, kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        left, right = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        self.lin_rel = Linear(left, out_channels, bias=bias)
        self.lin_root = Linear(right, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        self.lin_rel.reset_parameters()
        self.lin_root.reset_parameters()

    def forward(
        self,
        x: Tensor | Pair,
        edge_index: EdgeIndex,
        edge_weight: Tensor | None = None,
        size: Size = None,
    ) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor or None)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_weight : tensor, optional
            Weights of the edges; the values of a sparse matrix take precedence.
        size : (int, int), optional
            Numbers of sources and destinations.
        """
        left, right = self._pair(x)
        out = self._neighbours((left, right), edge_index, size, edge_weight)
        out = self._applied("x", self.lin_rel, out)
        return out if right is None else out + self._applied("x", self.lin_root, right)
