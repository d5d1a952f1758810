"""Base class of layers that reduce weighted features of the neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor

from ... import torch as _ops
from .._call import HALVES
from .._host import without_subclass
from ._edges.edge_index import EdgeIndex, check_device, is_sparse
from ._linear import is_plain
from ._messages import Messages, Size
from ._reductions import EXTREMES, SUMS, reduced_by_torch

if TYPE_CHECKING:
    from ._edges.layer_edges import Edges

Reduce: TypeAlias = Literal["sum", "mean", "amax", "amin", "softmax", "var"]
_REDUCTIONS: dict[str, Reduce] = {**SUMS, **EXTREMES}


class Aggregating(Messages):
    """Layer whose messages are features of the sources times a weight of the edge."""

    in_channels: int | tuple[int, int]
    out_channels: int
    _operator = "neighbours"
    """Route of the reduction, for `is_packed`."""
    _weighted = False
    """Whether a call takes edge weights."""

    def _edges_between(
        self,
        edge_index: EdgeIndex,
        ends: tuple[int, int | None],
        like: Tensor,
        width: int,
        *,
        size: Size = None,
        loops: int | None = None,
    ) -> Edges:
        """Return the edges for messages of some width; duplicates in a sparse matrix are summed."""
        plain = without_subclass(edge_index)
        if is_sparse(plain) and plain.layout is torch.sparse_coo:
            edge_index = plain.coalesce()
        self._same_nodes(ends)
        route = self._operator, width
        return self._edges(edge_index, ends, size, loops, like, route)

    def _weights(self, edges: Edges, given: Tensor | None, like: Tensor) -> Tensor | None:
        """Return the edge weights [edges], before self loops are added.

        As in PyTorch Geometric, the values of a sparse matrix take precedence if the reduction is
        native; for other reductions, they are the default of a layer with weights.
        """
        label = f"{self._label}: edge_weight"
        if given is not None:
            check_device(label, given, like.device)
        values = edges.values
        if values is not None and values.dim() > 1:
            raise ValueError(
                f"{self._label}: edge_index: expected a sparse matrix of numbers, got values of "
                f"shape {tuple(values.shape)}"
            )
        if values is not None and (self.aggr_module is None or (self._weighted and given is None)):
            return values.to(like.dtype)
        if given is None:
            return None
        if given.shape not in ((edges.given,), (edges.given, 1)):
            raise ValueError(
                f"{label}: expected {edges.given} weights, one for each edge, "
                f"got shape {tuple(given.shape)}"
            )
        if given.dtype in HALVES or (like.dtype in HALVES and given.dtype == torch.float32):
            return given.view(-1)
        if given.dtype != like.dtype and given.is_floating_point():
            raise TypeError(f"{label}: expected {like.dtype} like x, got {given.dtype}")
        return given.to(like.dtype).view(-1)

    def _aggregated(
        self, edges: Edges, x: Tensor, weight: Tensor | None, scale: Tensor | None = None
    ) -> Tensor:
        """Reduce the weighted features of the neighbours.

        `scale` [nodes, 1] multiplies the weight of an edge by the elements of both ends. It
        commutes with a native reduction.
        """
        if self.aggr_module is not None and scale is not None:
            weight, scale = scaled(edges, weight, scale), None
        if scale is None:
            return edges.drop_spare(self._reduced(edges, x, weight))
        return edges.drop_spare(self._reduced(edges, x * scale, weight)) * scale

    def _reduced(self, edges: Edges, x: Tensor, weight: Tensor | None) -> Tensor:
        fused = self._fused()
        if edges.graph is not None and fused is not None:
            reduce, temperature = fused
            return _ops.aggregate(
                edges.graph, x, None, weight, reduce=reduce, temperature=temperature
            )
        messages = edges.of_sources(x)
        if weight is not None:
            messages = messages * weight.unsqueeze(1)
        if edges.graph is None and isinstance(self.aggr, str) and self.aggr_module is None:
            dst = edges.dst.long()
            return reduced_by_torch(self._label, messages, dst, 0, edges.num_dst, self.aggr)
        return self._gathered(messages, edges.dst, edges.num_dst + edges.spare)

    def _fused(self) -> tuple[Reduce, float] | None:
        """Return the operator's reduction and temperature, None to materialize messages."""
        if self.aggr_module is not None:
            return _as_reduction(self.aggr_module)
        if not isinstance(self.aggr, str):
            return None
        return _REDUCTIONS[self.aggr], 1.0

    def _neighbours(
        self,
        x: tuple[Tensor, Tensor | None],
        edge_index: EdgeIndex,
        size: Size,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Reduce the features of the sources, the first of `x`, at the destinations."""
        left, right = x
        ends = left.shape[0], None if right is None else right.shape[0]
        size, width = self._sizes(size), left.shape[1]
        edges = self._edges_between(edge_index, ends, left, width, size=size)
        return self._aggregated(edges, left, self._weights(edges, weight, left))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels})"


def _as_reduction(aggregation: object) -> tuple[Reduce, float] | None:
    """Return the reduction with the results of an aggregation of PyTorch Geometric, if any.

    Not among them: its deviation is 0 for small variances, its means of powers are clamped, its
    products of no messages are 1, and its medians give the gradient of ties to any of them.
    """
    from torch_geometric.nn import aggr

    if not isinstance(aggregation, torch.nn.Module) or not is_plain(aggregation):
        return None
    kind = type(aggregation)  # subclasses may compute something else
    if isinstance(aggregation, aggr.VarAggregation) and kind is aggr.VarAggregation:
        return None if aggregation.semi_grad else ("var", 1.0)
    if isinstance(aggregation, aggr.SoftmaxAggregation) and kind is aggr.SoftmaxAggregation:
        temperature = aggregation.t
        number = isinstance(temperature, int | float) and math.isfinite(temperature)
        if number and not aggregation.semi_grad:
            return "softmax", float(temperature)
    return None


def scaled(edges: Edges, weight: Tensor | None, scale: Tensor) -> Tensor:
    """Return the weights of edges times the elements of `scale` [nodes, 1] at both ends."""
    ends = edges.append_spare(scale).index_select(0, edges.dst)
    factors = (edges.of_sources(scale) * ends).view(-1)
    return factors if weight is None else weight * factors
