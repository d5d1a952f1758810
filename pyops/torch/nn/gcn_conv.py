"""Replacement for PyTorch Geometric's `GCNConv`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from ...graph import Graph
from .._call import is_tracing
from .._ranks import is_distributed
from ._aggregating import Aggregating, scaled
from ._linear import Linear, zeros

if TYPE_CHECKING:
    from ._edges.edge_index import EdgeIndex
    from ._edges.layer_edges import Edges
    from ._messages import Aggr, Flow


class GCNConv(Aggregating):
    r"""Graph convolution, a replacement for PyTorch Geometric's ``GCNConv``.

    .. math::

        x'_i = \operatorname{aggr}_{j \in N(i) \cup \{i\}} \frac{w_{ij}}{\sqrt{d_i d_j}} W x_j,
        \qquad d_i = \sum_{j \in N(i) \cup \{i\}} w_{ij}

    Parameters
    ----------
    in_channels : int
        Width of the features; -1 to infer it at first use.
    out_channels : int
    improved : bool
        Whether added self loops weigh 2, not 1, if edges have weights.
    cached : bool
        Whether the normalised edges of the first call are those of all later ones.
    add_self_loops : bool, optional
        Whether nodes without a self loop get one; as `normalize` if not given.
    normalize : bool
        Whether to divide by the degrees.
    bias : bool
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
        Keyword only.
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Kipf and Welling, Semi-supervised classification with graph convolutional networks,
    arXiv:1609.02907.
    """

    bias: Parameter | None
    _weighted = True
    _cached_edge_index: tuple[EdgeIndex, Tensor | None] | None
    """Edges and normalised weights, in the form of PyTorch Geometric."""

    _takes_pairs = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        *,
        aggr: Aggr = "add",
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        super().__init__(aggr, flow, kwargs)
        loops = normalize if add_self_loops is None else add_self_loops
        if loops and not normalize:
            raise ValueError(
                f"{self._label}: add_self_loops: expected False where normalize=False, got True"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.improved = improved
        self.cached = cached
        self.add_self_loops = loops
        self.normalize = normalize
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.register_parameter("bias", Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew, and forget cached edges."""
        super().reset_parameters()
        self.lin.reset_parameters()
        zeros(self.bias)
        self._cached_edge_index = None

    def forward(
        self, x: Tensor, edge_index: EdgeIndex, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return the new features of the nodes.

        Parameters
        ----------
        x : tensor
            Features of the nodes.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_weight : tensor, optional
            Weights of the edges; the values of a sparse matrix take precedence.
        """
        if isinstance(x, tuple | list):
            raise ValueError(
                f"{self._label}: x: expected a tensor, got a {type(x).__name__}: the layer has one "
                "kind of nodes; use SAGEConv or GraphConv"
            )
        x, _ = self._pair(x)
        if self._cached_edge_index is None:
            edges, weight, scale = self._normalised(x, edge_index, edge_weight)
        else:
            edge_index, weight = self._cached_edge_index
            edges = self._edges_between(edge_index, (x.shape[0],) * 2, x, self.out_channels)
            weight, scale = self._weights(edges, weight, x), None
        out = self._aggregated(edges, self._applied("x", self.lin, x), weight, scale)
        return out if self.bias is None else out + self.bias

    def _normalised(
        self, x: Tensor, edge_index: EdgeIndex, edge_weight: Tensor | None
    ) -> tuple[Edges, Tensor | None, Tensor | None]:
        """Return the edges, their weights, and the scale that normalises these, if any."""
        nodes = x.shape[0]
        loops = nodes if self.add_self_loops else None
        edges = self._edges_between(edge_index, (nodes, nodes), x, self.out_channels, loops=loops)
        if not self.normalize:
            return edges, self._weights(edges, edge_weight, x), None
        matrix = edges.values is not None  # whose values are the weights, as in the original
        weight = self._weights(edges, None if matrix else edge_weight, x)
        if weight is None:
            totals = edges.counts(x)
        else:
            if loops is not None:
                weight = edges.looped_weights(weight, 2.0 if self.improved else 1.0, matrix)
            totals = edges.sums(weight)
        scale = edges.drop_spare(totals).pow(-0.5)
        scale = scale.masked_fill(scale == math.inf, 0).unsqueeze(1)
        if not self.cached or is_tracing(x):
            return edges, weight, scale
        weight = scaled(edges, weight, scale)
        packed = isinstance(edge_index, Graph) or is_distributed(edge_index)
        self._cached_edge_index = edge_index if packed else edges.index, weight
        return edges, weight, None
