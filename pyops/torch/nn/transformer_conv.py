"""Replacement for PyTorch Geometric's `TransformerConv`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ... import torch as _ops
from ._attention import Attention, Weighted
from ._edges.edge_index import EdgeIndex, is_sparse
from ._linear import Linear

if TYPE_CHECKING:
    from ._messages import Aggr, Flow, Pair


class TransformerConv(Attention):
    r"""Dot-product attention, a replacement for PyTorch Geometric's ``TransformerConv``.

    .. math::

        x'_i = W_1 x_i + \sum_{j \in N(i)} \alpha_{ij} (W_2 x_j + W_6 f_{ij}), \qquad
        \alpha_{ij} = \operatorname{softmax}_j
        \frac{\langle W_3 x_i, W_4 x_j + W_6 f_{ij} \rangle}{\sqrt{\text{out\_channels}}}

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the features, or of those of sources and destinations; -1 to infer it at first use.
    out_channels : int
        Width of a head.
    heads : int
    concat : bool
        Whether heads are concatenated; else averaged.
    beta : bool
        Whether a learnt gate weights the root term and the sum over neighbours.
    dropout : float
        Of the attention weights, in training.
    edge_dim : int, optional
        Width of edge features.
    bias : bool
        In the linear layers.
    root_weight : bool
        Whether to add the root term W_1 x_i.
    aggr : {"add", "sum", "mean", "max", "min"}, or what PyTorch Geometric has
        Keyword only. All but the first three reduce messages that are materialized for it.
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Shi et al., Masked label prediction: unified message passing model for semi-supervised
    classification, arXiv:2009.03509.
    """

    _operator = "transformer_conv"
    _alpha = None
    """Attribute that PyTorch Geometric resets after each call, for code that reads it."""

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        *,
        aggr: Aggr = "add",
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        shared = in_channels, out_channels, heads, concat, dropout, edge_dim
        super().__init__(*shared, aggr, flow, kwargs)
        self.beta = beta and root_weight
        self.root_weight = root_weight
        left, right = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        inner, outer = self._widths
        self.lin_key = Linear(left, inner, bias=bias)
        self.lin_query = Linear(right, inner, bias=bias)
        self.lin_value = Linear(left, inner, bias=bias)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, inner, bias=False)
        self.lin_skip = Linear(right, outer, bias=bias)
        self.lin_beta = Linear(3 * outer, 1, bias=False) if self.beta else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        first = self.lin_key, self.lin_query, self.lin_value, self.lin_edge
        for linear in (*first, self.lin_skip, self.lin_beta):
            if linear is not None:
                linear.reset_parameters()

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
            If True or False, the result is ``(features, (edge_index, weights))``, with the weights
            before dropout.
        """
        left, right = self._both(x)
        query = self._applied("x", self.lin_query, right)
        key, value = (self._applied("x", part, left) for part in (self.lin_key, self.lin_value))
        ends = left.shape[0], right.shape[0]
        edges = self._edges(edge_index, ends, None, None, query, self._route)
        features = edges.features(self._label, edge_attr, 0.0)
        if (features is None) != (self.lin_edge is None):
            expected = (
                "none where edge_dim is None" if self.lin_edge is None else "edge_dim columns"
            )
            got = "None" if features is None else f"shape {tuple(features.shape)}"
            raise ValueError(f"{self._label}: edge_attr: expected {expected}, got {got}")
        if self.lin_edge is not None and features is not None:
            features = self._applied("edge_attr", self.lin_edge, self._matrix(features))
        mask = self._mask(edges, query, edge_index)

        def fused() -> Tensor:
            assert edges.graph is not None
            rows = query, key, value, features, mask
            return _ops.transformer_conv(edges.graph, *rows, heads=self.heads, concat=self.concat)

        def gather(rows: Tensor) -> Tensor:
            rows = edges.of_sources(rows)
            return self._by_heads(rows if features is None else rows + features)

        def scores() -> Tensor:
            queries = self._by_heads(query.index_select(0, edges.dst))
            return (queries * gather(key)).sum(-1) / math.sqrt(self.out_channels)

        weighted = isinstance(return_attention_weights, bool)
        out, alpha = self._reduced(edges, fused, scores, lambda: gather(value), mask, weighted)
        if self.root_weight:
            own = self._applied("x", self.lin_skip, right)
            if self.lin_beta is not None:
                gate = self.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
                out = gate * own + (1 - gate) * out
            else:
                out = out + own
        if alpha is None:
            return out
        returned = edge_index if is_sparse(edge_index) else edges.returned(edge_index)
        return out, (returned, alpha)
