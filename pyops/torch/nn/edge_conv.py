"""Replacement for PyTorch Geometric's `EdgeConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ... import torch as _ops
from .._call import is_exporting
from ._linear import AnyLinear, reset
from ._messages import Aggr, Flow, Messages, Pair
from ._networks import Layers, network_of
from ._reductions import EXTREMES, SUMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._edges.edge_index import EdgeIndex
    from ._edges.layer_edges import Edges


class EdgeConv(Messages):
    r"""Edge convolution, a replacement for PyTorch Geometric's ``EdgeConv``.

    .. math:: x'_i = \operatorname{aggr}_{j \in N(i)} h(x_i \mid x_j - x_i)

    Parameters
    ----------
    nn : torch.nn.Module
        The network h: maps twice the width of the features to the width of the result. Fastest is
        a ``torch.nn.Sequential`` or an ``MLP`` of PyTorch Geometric of linear layers, hidden ones
        of equal width, with one of ``ReLU``, ``SiLU``, exact ``GELU`` and ``Tanh`` between them:
        its inputs and hidden values are not materialized, nor are its results for a sum or mean.
    aggr : {"max", "min", "add", "sum", "mean"}, or what PyTorch Geometric has
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    Notes
    -----
    The operators compute the first layer from x_i and x_j, not from their difference: features that
    differ by less than a small fraction of their magnitude lose digits. Center them if so.

    References
    ----------
    Wang et al., Dynamic graph CNN for learning on point clouds, arXiv:1801.07829.
    """

    def __init__(
        self,
        nn: Callable[[Tensor], Tensor],
        aggr: Aggr = "max",
        *,
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        super().__init__(aggr, flow, kwargs)
        self.nn = nn
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the network anew."""
        super().reset_parameters()
        reset(self.nn)

    def forward(self, x: Tensor | Pair, edge_index: EdgeIndex) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        """
        left, right = self._pair(x)
        if right is None:
            raise TypeError(f"{self._label}: x: expected features of the destinations, got None")
        ends = left.shape[0], right.shape[0]
        self._same_nodes(ends)
        network = network_of(self.nn)
        if network is None:
            route = "neighbours", left.shape[1] + right.shape[1]
        else:
            self._check_input(network[0], left, right)
            route = "edge_network", network[1].hidden
        edges = self._edges(edge_index, ends, None, None, left, route)
        if network is None or edges.graph is None or is_exporting():
            rows = right.index_select(0, edges.dst)
            messages = self.nn(torch.cat([rows, edges.of_sources(left) - rows], dim=-1))
            return self._reduced(edges, messages)
        return self._computed(edges, left, right, *network)

    def _check_input(self, first: AnyLinear, left: Tensor, right: Tensor) -> None:
        """Refuse features that do not match the first layer of the network."""
        for rows in left, right:
            if 2 * rows.shape[1] != first.weight.shape[1]:
                raise ValueError(
                    f"{self._label}: x: expected half of the {first.weight.shape[1]} columns that "
                    f"nn takes, got shape {tuple(rows.shape)}"
                )
            if rows.dtype != first.weight.dtype and not torch.is_autocast_enabled(rows.device.type):
                raise TypeError(
                    f"{self._label}: x: expected {first.weight.dtype} like nn, got {rows.dtype}"
                )

    def _computed(
        self, edges: Edges, left: Tensor, right: Tensor, first: AnyLinear, layers: Layers
    ) -> Tensor:
        """Compute the network by an operator: the first layer is (A - B) x_i + B x_j."""
        of_destination, of_difference = first.weight.chunk(2, dim=1)
        weights = of_difference, of_destination - of_difference
        graph, options = edges.graph, layers.options
        assert graph is not None
        device = left.device.type
        stays = device == "cuda" and layers.norm is not None  # whose result is float32 there
        casts = torch.is_autocast_enabled(device) and not stays
        if casts and left.dtype == right.dtype == torch.float32:
            kind = torch.get_autocast_dtype(device)
            left, right = left.to(kind), right.to(kind)  # so that the result has this type
        given = left, layers.params(weights, first.bias), right
        if self.aggr_module is None and isinstance(self.aggr, str) and self.aggr in SUMS:
            return _ops.edge_network(graph, *given, reduce=SUMS[self.aggr], **options)
        messages = _ops.edge_mlp(graph, *given, **options)
        if self.aggr_module is not None or not isinstance(self.aggr, str):
            return self._reduced(edges, messages)
        return _ops.aggregate(graph, None, messages, reduce=EXTREMES[self.aggr])

    def _reduced(self, edges: Edges, messages: Tensor) -> Tensor:
        """Reduce materialized messages."""
        out = self._gathered(messages, edges.dst, edges.num_dst)
        return out / edges.degrees(out)[:, None] if self.aggr == "mean" else out

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return f"{type(self).__name__}(nn={self.nn})"
