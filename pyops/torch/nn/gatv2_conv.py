"""Replacement for PyTorch Geometric's `GATv2Conv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from ... import torch as _ops
from ._attention import Attention, Weighted
from ._edges.layer_edges import Fill, least
from ._linear import Linear, glorot, zeros

if TYPE_CHECKING:
    from ._edges.edge_index import EdgeIndex
    from ._messages import Aggr, Flow, Pair


class GATv2Conv(Attention):
    r"""Graph attention, a replacement for PyTorch Geometric's ``GATv2Conv``.

    .. math::

        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W_l x_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j
        \langle a, \operatorname{leaky\_relu}(W_l x_j + W_r x_i + W_e f_{ij}) \rangle

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the features, or of those of sources and destinations; -1 to infer it at first use.
    out_channels : int
        Width of a head.
    heads : int
    concat : bool
        Whether heads are concatenated; else averaged.
    negative_slope : float
    dropout : float
        Of the attention weights, in training.
    add_self_loops : bool
        Whether each node attends to itself, once.
    edge_dim : int, optional
        Width of edge features.
    fill_value : float, tensor or {"mean", "add", "sum", "min", "max", "mul"}
        Features of self loops, or how to reduce them from those of the incoming edges.
    bias : bool
        In the result and in the linear layers of the nodes.
    share_weights : bool
        Whether W_r is W_l.
    residual : bool
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
        Keyword only. All but the first three reduce messages that are materialized for it.
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Brody et al., How attentive are graph attention networks?, arXiv:2105.14491.
    """

    _operator = "gat_v2"

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: Fill = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        *,
        aggr: Aggr = "sum",
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        shared = in_channels, out_channels, heads, concat, dropout, edge_dim
        super().__init__(*shared, aggr, flow, kwargs)
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.fill_value = fill_value
        self.residual = residual
        self.share_weights = share_weights

        def linear(width: int, out: int, bias: bool = False) -> Linear:
            return Linear(width, out, bias=bias, weight_initializer="glorot")

        inner, outer = self._widths
        left, right = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        self.lin_l = linear(left, inner, bias)
        self.lin_r = self.lin_l if share_weights else linear(right, inner, bias)
        self.att = Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else linear(edge_dim, inner)
        self.res = linear(right, outer) if residual else None
        self.register_parameter("bias", Parameter(torch.empty(outer)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        for linear in (self.lin_l, self.lin_r, self.lin_edge, self.res):
            if linear is not None:
                linear.reset_parameters()
        glorot(self.att)
        zeros(self.bias)

    def forward(
        self,
        x: Tensor | Pair,
        edge_index: EdgeIndex,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, Weighted]:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_attr : tensor, optional
            Features of the edges.
        return_attention_weights : bool, optional
            If true, the result is ``(features, (edge_index, weights))``.
        """
        left, right = self._both(x)
        res = None if self.res is None else self._applied("x", self.res, right)
        x_l = self._applied("x", self.lin_l, left)
        same = right is left and self.share_weights
        x_r = x_l if same else self._applied("x", self.lin_r, right)
        ends = left.shape[0], right.shape[0]
        self._same_nodes(ends)
        loops = least(ends) if self.add_self_loops else None
        edges = self._edges(edge_index, ends, None, loops, x_l, self._route)
        features = edges.features(self._label, edge_attr, self.fill_value)
        if features is not None:
            if self.lin_edge is None:
                raise ValueError(f"{self._label}: edge_attr: expected none where edge_dim is None")
            features = features.view(-1, 1) if features.dim() == 1 else features
            features = self._applied("edge_attr", self.lin_edge, features)
        mask = self._mask(edges, x_l, edge_index)

        def fused() -> Tensor:
            assert edges.graph is not None
            return _ops.gat_v2(
                edges.graph,
                x_l,
                edges.append_spare(x_r),
                self.att.flatten(),
                features,
                mask,
                heads=self.heads,
                concat=self.concat,
                negative_slope=float(self.negative_slope),
            )

        def values() -> Tensor:
            return self._by_heads(edges.of_sources(x_l))

        def scores() -> Tensor:
            total = values() + self._by_heads(edges.append_spare(x_r).index_select(0, edges.dst))
            total = total if features is None else total + self._by_heads(features)
            total = torch.nn.functional.leaky_relu(total, self.negative_slope)
            return (total * self.att).sum(-1)

        weighted = bool(return_attention_weights)
        out, alpha = self._reduced(edges, fused, scores, values, mask, weighted)
        return self._finished(out, res, edge_index, edges, alpha, mask)
