"""Replacement for PyTorch Geometric's `NNConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ... import torch as _ops
from ._edges.layer_edges import Edges, per_edge_graph
from ._linear import AnyLinear, Linear, is_linear, is_plain, reset, zeros
from ._messages import FLOWS, Aggr, Flow, Messages, Pair, Size
from ._networks import Activation, activation_of
from ._reductions import contiguous_gradient

if TYPE_CHECKING:
    from ...distributed import DistributedGraph
    from ...graph import Graph
    from .._graph import TracedGraph
    from ._edges.edge_index import EdgeIndex


class NNConv(Messages):
    r"""Edge-conditioned convolution, a replacement for PyTorch Geometric's ``NNConv``.

    .. math:: x'_i = W x_i + \operatorname{aggr}_{j \in N(i)} x_j \, h(f_{ij})

    with a matrix h for every edge. If the last layer of the network is linear, the matrices are not
    materialized, because that layer commutes with the sum (`pyops.kernel_conv`).

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the features, or of those of sources and destinations.
    out_channels : int
    nn : torch.nn.Module
        The network h: maps edge features to ``in_channels * out_channels`` elements. A
        ``torch.nn.Sequential`` that ends with a linear layer is fastest.
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
        All but the first three reduce messages that are materialized for it.
    root_weight : bool
        Whether to add the root term W x_i.
    bias : bool
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Gilmer et al., Neural message passing for quantum chemistry, arXiv:1704.01212.
    """

    bias: Parameter | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        nn: torch.nn.Module,
        aggr: Aggr = "add",
        root_weight: bool = True,
        bias: bool = True,
        *,
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        super().__init__(aggr, flow, kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.nn = nn
        self.root_weight = root_weight
        left, right = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        self.in_channels_l = left
        if root_weight:
            self.lin = Linear(right, out_channels, bias=False, weight_initializer="uniform")
        self.register_parameter("bias", Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew, including those of the network."""
        super().reset_parameters()
        reset(self.nn)
        if self.root_weight:
            self.lin.reset_parameters()
        zeros(self.bias)

    def forward(
        self,
        x: Tensor | Pair,
        edge_index: EdgeIndex,
        edge_attr: Tensor | None = None,
        size: Size = None,
    ) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor or None)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_attr : tensor
            Features of the edges.
        size : (int, int), optional
            Numbers of sources and destinations.
        """
        left, right = self._pair(x)
        size = self._sizes(size)
        if self.flow != FLOWS[0] and not self.root_weight:
            right = None  # unused, and its number of rows may differ
        ends = left.shape[0], None if right is None else right.shape[0]
        self._same_nodes(ends)
        route = "kernel_conv", self.in_channels_l * self.out_channels
        edges = self._edges(edge_index, ends, size, None, left, route)
        if left.shape[1] != self.in_channels_l:
            raise ValueError(
                f"{self._label}: x: expected shape (nodes, {self.in_channels_l}), "
                f"got {tuple(left.shape)}"
            )
        features = edges.features(self._label, edge_attr, 0.0)
        if features is None:
            raise ValueError(f"{self._label}: edge_attr: expected features of the edges, got None")
        if is_linear(_first(self.nn)):
            features = self._matrix(features)
        out = self._convolved(edges, left, features)
        if right is not None and self.root_weight:
            out = out + self._applied("x", self.lin, right)
        return out if self.bias is None else out + self.bias

    def _convolved(self, edges: Edges, x: Tensor, features: Tensor) -> Tensor:
        if edges.graph is None:
            matrices = self._matrices(x, features).view(-1, x.shape[1], self.out_channels)
            rows = x.index_select(0, edges.src).unsqueeze(1)
            try:
                messages = (rows @ matrices).squeeze(1)
            except RuntimeError:
                self._check_network(x, features)
                raise
            out = self._gathered(messages, edges.dst, edges.num_dst)
        elif self._by_message:
            x = edges.sources(x)
            messages = self._summed(per_edge_graph(edges, x.shape[0]), x, features)
            return self._gathered(messages, edges.dst, edges.num_dst)
        else:
            out = self._summed(edges.graph, x, features)
        return out / edges.degrees(out)[:, None] if self.aggr == "mean" else out

    def _check_network(self, x: Tensor, features: Tensor) -> None:
        """Refuse a network whose layers do not match features and channels."""
        layers = _layers(self.nn)
        if layers is None:
            return
        weight, size = layers.last.weight, x.shape[1] * self.out_channels
        if weight.shape[0] != size:
            raise ValueError(
                f"{self._label}: nn: expected in_channels * out_channels = {size} numbers, "
                f"got {weight.shape[0]}"
            )
        first = layers.others[0] if layers.others else layers.last
        for name, rows, layer in (("x", x, layers.last), ("edge_attr", features, first)):
            differs = is_linear(layer) and rows.dtype != weight.dtype
            if differs and not torch.is_autocast_enabled("cpu"):
                raise TypeError(
                    f"{self._label}: {name}: expected {weight.dtype} like nn, got {rows.dtype}"
                )
        if layers.fused is None:
            return
        hidden, columns = layers.fused[0].weight.shape
        widths = features.shape[-1], hidden
        if widths != (columns, weight.shape[1]):
            raise ValueError(
                f"{self._label}: edge_attr: expected {columns} columns and "
                f"{weight.shape[1]} hidden units for nn, got {widths[0]} and {widths[1]}"
            )

    def _matrices(self, x: Tensor, features: Tensor) -> Tensor:
        """Return the matrix of each edge, flattened to a row."""
        try:
            matrices: Tensor = self.nn(features)
        except RuntimeError:
            self._check_network(x, features)
            raise
        rows = x.shape[1] * self.out_channels
        if matrices.numel() != rows * features.shape[0]:
            self._check_network(x, features)
            raise ValueError(
                f"{self._label}: nn: expected in_channels * out_channels = {rows} numbers for each "
                f"of {features.shape[0]} edges, got shape {tuple(matrices.shape)}"
            )
        return matrices.reshape(-1, rows)

    def _summed(
        self, graph: Graph | TracedGraph | DistributedGraph, x: Tensor, features: Tensor
    ) -> Tensor:
        self._check_network(x, features)
        layers = _layers(self.nn)
        if layers is None:
            return _ops.gno_aggregate(graph, x, self._matrices(x, features))
        fused = layers.fused
        if fused is None:
            hidden = features
            for layer in layers.others:
                hidden = layer(hidden)
            return _ops.kernel_conv(graph, x, hidden, layers.last.weight, layers.last.bias)
        first, activation = fused
        return _ops.gno_conv(
            graph,
            x,
            features,
            torch.cat([part for layer in (first, layers.last) for part in _block(layer)]),
            hidden=first.weight.shape[0],
            activation=activation,
        )

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, "
            f"aggr={self.aggr}, nn={self.nn})"
        )


class _Layers(NamedTuple):
    """Layers of a network, the last of which is linear."""

    others: list[torch.nn.Module]
    last: AnyLinear

    @property
    def fused(self) -> tuple[AnyLinear, Activation] | None:
        """Return first layer and activation if one operator covers the network, else None.

        It does if the layers are linear, activation, linear.
        """
        if len(self.others) != 2:
            return None
        first, between = self.others
        activation = activation_of(between)
        return None if activation is None or not is_linear(first) else (first, activation)


def _layers(network: torch.nn.Module) -> _Layers | None:
    """Return the layers of a plain `Sequential` that ends with a linear layer, else None."""
    if type(network) is not torch.nn.Sequential or len(network) == 0 or not is_plain(network):
        return None
    *others, last = network
    return _Layers(others, last) if is_linear(last) else None


def _first(network: torch.nn.Module) -> torch.nn.Module:
    """Return the first layer of a network, which takes the edge features."""
    return network[0] if type(network) is torch.nn.Sequential and len(network) > 0 else network


def _block(layer: AnyLinear) -> tuple[Tensor, Tensor]:
    """Return the transposed weight, flattened, and the bias of a linear layer."""
    weight, bias = contiguous_gradient(layer.weight), layer.bias
    return weight.t().flatten(), weight.new_zeros(weight.shape[0]) if bias is None else bias
