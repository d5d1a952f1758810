"""Replacement for PyTorch Geometric's `GATConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from ... import torch as _ops
from ._attention import Attention, Weighted
from ._edges.edge_index import EdgeIndex, check_device
from ._edges.layer_edges import Edges, Fill, least
from ._linear import Linear, glorot, is_linear, zeros
from ._reductions import contiguous_gradient

if TYPE_CHECKING:
    from ._messages import Aggr, Flow, Pair, Size


class LinearAttention(Attention):
    """Attention whose scores are linear in the features of both nodes before the activation."""

    negative_slope: float
    _operator = "gat"

    def _attend(
        self,
        edges: Edges,
        x_src: Tensor,
        x_dst: Tensor | None,
        att: tuple[Tensor, Tensor],
        edge_scores: Tensor | None,
        mask: Tensor | None,
        weighted: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the new features, and the attention weights if requested.

        `att` [1, heads, out_channels] has the weights of sources and of destinations.
        """
        x, (att_src, att_dst) = x_src, att
        z = x.new_zeros(edges.num_dst, x.shape[1]) if x_dst is None else x_dst

        def fused() -> Tensor:
            assert edges.graph is not None
            block = [att_src.flatten(), att_dst.flatten()]
            if edge_scores is not None:
                block.append(x.new_ones(self.heads))
            return _ops.gat(
                edges.graph,
                x,
                edges.append_spare(z),
                torch.cat(block),
                edge_scores,
                mask,
                heads=self.heads,
                concat=self.concat,
                negative_slope=float(self.negative_slope),
            )

        def scores() -> Tensor:
            source = (self._by_heads(x) * att_src).sum(-1)
            target = edges.append_spare((self._by_heads(z) * att_dst).sum(-1))
            total = edges.of_sources(source) + target.index_select(0, edges.dst)
            total = total if edge_scores is None else total + edge_scores
            return torch.nn.functional.leaky_relu(total, self.negative_slope)

        def values() -> Tensor:
            return self._by_heads(edges.of_sources(x))

        return self._reduced(edges, fused, scores, values, mask, weighted)


class GATConv(LinearAttention):
    r"""Graph attention, a replacement for PyTorch Geometric's ``GATConv``.

    .. math::

        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W x_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j \operatorname{leaky\_relu}(
        \langle a_\text{src}, W x_j \rangle + \langle a_\text{dst}, W x_i \rangle
        + \langle a_\text{edge}, W_e f_{ij} \rangle)

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
    bias, residual : bool
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
        Keyword only. All but the first three reduce messages that are materialized for it.
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Velickovic et al., Graph attention networks, arXiv:1710.10903.
    """

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
        residual: bool = False,
        *,
        aggr: Aggr = "add",
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        shared = in_channels, out_channels, heads, concat, dropout, edge_dim
        super().__init__(*shared, aggr, flow, kwargs)
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.fill_value = fill_value
        self.residual = residual

        def linear(width: int, out: int) -> Linear:
            return Linear(width, out, bias=False, weight_initializer="glorot")

        inner, outer = self._widths
        self.lin = self.lin_src = self.lin_dst = self.lin_edge = None
        if isinstance(in_channels, int):
            self.lin = linear(in_channels, inner)
        else:
            self.lin_src = linear(in_channels[0], inner)
            self.lin_dst = linear(in_channels[1], inner)
        self.att_src = Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = Parameter(torch.empty(1, heads, out_channels))
        self.register_parameter("att_edge", None)
        if edge_dim is not None:
            self.lin_edge = linear(edge_dim, inner)
            self.att_edge = Parameter(torch.empty(1, heads, out_channels))
        self.res = None
        if residual:
            last = in_channels if isinstance(in_channels, int) else in_channels[1]
            self.res = linear(last, outer)
        self.register_parameter("bias", Parameter(torch.empty(outer)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        for linear in (self.lin, self.lin_src, self.lin_dst, self.lin_edge, self.res):
            if linear is not None:
                linear.reset_parameters()
        for weight in (self.att_src, self.att_dst, self.att_edge):
            glorot(weight)
        zeros(self.bias)

    def forward(
        self,
        x: Tensor | Pair,
        edge_index: EdgeIndex,
        edge_attr: Tensor | None = None,
        size: Size = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, Weighted]:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor or None)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_attr : tensor, optional
            Features of the edges.
        size : (int, int), optional
            Numbers of sources and destinations.
        return_attention_weights : bool, optional
            If true, the result is ``(features, (edge_index, weights))``.
        """
        x_src, x_dst = self._pair(x)
        size = self._sizes(size, self.add_self_loops)
        ends = x_src.shape[0], None if x_dst is None else x_dst.shape[0]
        res = None if x_dst is None or self.res is None else self._applied("x", self.res, x_dst)
        if self.lin is not None:
            same = x_dst is x_src
            x_src = self._applied("x", self.lin, x_src)
            if x_dst is not None:
                x_dst = x_src if same else self._applied("x", self.lin, x_dst)
        else:
            assert self.lin_src is not None
            assert self.lin_dst is not None
            x_src = self._applied("x", self.lin_src, x_src)
            x_dst = None if x_dst is None else self._applied("x", self.lin_dst, x_dst)
        self._same_nodes(ends)
        loops = None
        if self.add_self_loops:
            loops = least([n for n in (ends if size is None else size) if n is not None])
        edges = self._edges(edge_index, ends, size, loops, x_src, self._route)
        scores = self._edge_scores(edges, edge_attr)
        mask = self._mask(edges, x_src, edge_index)
        weighted = bool(return_attention_weights)
        att = self.att_src, self.att_dst
        out, alpha = self._attend(edges, x_src, x_dst, att, scores, mask, weighted)
        return self._finished(out, res, edge_index, edges, alpha, mask)

    def _edge_scores(self, edges: Edges, edge_attr: Tensor | None) -> Tensor | None:
        """Return the scores of edge features, [edges, heads], without projecting the features."""
        if self.lin_edge is None:  # features are not read, as in PyTorch Geometric
            if edge_attr is not None:
                check_device(f"{self._label}: edge_attr", edge_attr)
            return None
        features = edges.features(self._label, edge_attr, self.fill_value)
        if features is None:
            return None
        features = features.view(-1, 1) if features.dim() == 1 else features
        if not is_linear(self.lin_edge, biased=False):  # as before a lazy width is set
            features = self._applied("edge_attr", self.lin_edge, features)
            return (self._by_heads(features) * self.att_edge).sum(-1)
        weight = contiguous_gradient(self.lin_edge.weight)
        weight = weight.view(self.heads, self.out_channels, -1)
        try:
            return features @ torch.einsum("hcd,hc->dh", weight, self.att_edge[0])
        except RuntimeError:
            self._explain("edge_attr", self.lin_edge, features)
            raise
