"""Base class of attention layers: the softmax of scores and the reduction that it weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from .._call import is_tracing
from ._edges.edge_index import EdgeIndex, SizedIndex, is_sparse, order_of, with_values
from ._functions import softmax
from ._messages import Aggr, Flow, Messages, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.nn import Parameter

    from ._edges.layer_edges import Edges

Weighted: TypeAlias = "tuple[EdgeIndex | SizedIndex, Tensor]"
"""Edges and their attention weights."""


class Attention(Messages):
    """Multi-head attention: a layer whose messages are weighted by a softmax."""

    bias: Parameter | None
    _operator: str
    """Operator that sums the messages along a packed graph."""

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int,
        concat: bool,
        dropout: float,
        edge_dim: int | None,
        aggr: Aggr,
        flow: Flow,
        others: Mapping[str, object],
    ) -> None:
        super().__init__(aggr, flow, others)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.edge_dim = edge_dim

    @property
    def _widths(self) -> tuple[int, int]:
        """Widths of the features of all heads, and of the result."""
        inner = self.heads * self.out_channels
        return inner, inner if self.concat else self.out_channels

    @property
    def _route(self) -> tuple[str, int]:
        """Operator and elements of a message, for `is_packed`."""
        return self._operator, self._widths[0]

    def _both(self, x: Tensor | Pair) -> tuple[Tensor, Tensor]:
        """Return the features of sources and destinations, both required."""
        src, dst = self._pair(x)
        if dst is None:
            raise ValueError(f"{self._label}: x: expected features of the destinations, got None")
        return src, dst

    def _mask(self, edges: Edges, like: Tensor, edge_index: EdgeIndex) -> Tensor | None:
        """Return the dropout factors of the attention weights, in the random order of the original.

        In a sparse matrix, PyTorch Geometric sorts self loops into the rows.
        """
        if not (self.training and self.dropout > 0):
            return None
        ones = like.new_ones(edges.count, self.heads)
        mask: Tensor = torch.nn.functional.dropout(ones, self.dropout)
        if edges.loops is None or not is_sparse(edge_index) or is_tracing(edges.index):
            return mask
        return mask[order_of(edge_index, edges.index).argsort()]

    def _reduced(
        self,
        edges: Edges,
        fused: Callable[[], Tensor],
        scores: Callable[[], Tensor],
        values: Callable[[], Tensor],
        mask: Tensor | None,
        weighted: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Reduce the messages, by one operator if they are summed, and return also the weights.

        `fused` sums the messages; `scores` [edges, heads] are the input of the softmax; `values`
        [edges, heads, width] are the weighted features. The weights, before the mask, are computed
        if they are requested or needed.
        """
        alpha, rows = None, edges.num_dst + edges.spare
        by_message = self._by_message or edges.graph is None
        if weighted or by_message:
            alpha = softmax(scores(), edges.dst, num_nodes=rows)
        if by_message:
            assert alpha is not None
            factors = alpha if mask is None else alpha * mask
            messages = factors.unsqueeze(-1) * values()
            out = edges.drop_spare(self._gathered(messages, edges.dst, rows))
            out = out.flatten(1) if self.concat else out.mean(1)
        else:
            out = edges.drop_spare(fused())
        if self.aggr == "mean":
            out = out / edges.drop_spare(edges.degrees(out))[:, None]
        return out, alpha if weighted else None

    def _by_heads(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.heads, self.out_channels)

    def _finished(
        self,
        out: Tensor,
        res: Tensor | None,
        edge_index: EdgeIndex,
        edges: Edges,
        alpha: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor | tuple[Tensor, Weighted]:
        """Add residual and bias; return also the edges and their weights if requested."""
        for part in (res, self.bias):
            out = out if part is None else out + part
        if alpha is None:
            return out
        alpha = alpha if mask is None else alpha * mask
        if edges.spare:
            raise ValueError(
                f"{self._label}: return_attention_weights: not with add_self_loops=True where "
                "torch compiles, which has to know the number of edges"
            )
        if is_sparse(edge_index):
            return out, with_values(edge_index, edges.index, alpha, edges.loops is not None)
        return out, (edges.returned(edge_index), alpha)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"
