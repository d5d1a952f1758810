"""Replacement for PyTorch Geometric's `RGCNConv`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from ... import torch as _ops
from ...graph import Graph
from .._call import DTYPES, is_tracing
from .._host import array_of, is_mapped
from ._aggregating import Aggregating
from ._edges.edge_index import EdgeIndex, check_device, integers
from ._edges.layer_edges import Edges, by_relation, types_of_sources
from ._linear import glorot, zeros

if TYPE_CHECKING:
    from ._messages import Aggr, Flow

Nodes: TypeAlias = "Tensor | tuple[Tensor | None, Tensor] | None"
_LINEAR = "mean", "sum", "add"
"""Reductions that commute with the products."""
_LARGE = 2**26
"""Elements of the sums of all relations above which relations are summed one by one, unless most
nodes have edges of most relations."""


class Relational(Aggregating):
    """Layer that reduces the features of each relation and multiplies them by a matrix of it."""

    num_relations: int
    num_blocks: int | None
    comp: Parameter | None

    def _types(self, edges: Edges, given: Tensor | None) -> Tensor:
        """Return the relations of the edges as int64."""
        label = f"{self._label}: edge_type"
        if given is None:
            raise ValueError(f"{label}: expected the relation of each edge, got None")
        types = check_device(label, integers(label, given), edges.index.device)
        if types.shape[0] != edges.count:
            raise ValueError(
                f"{label}: expected {edges.count} relations, one for each edge, "
                f"got {types.shape[0]}"
            )
        if not is_tracing(types) and not is_mapped(types) and types.is_cpu and types.numel():
            held, most = array_of(types), self.num_relations
            if held.min() < 0 or held.max() >= most:
                wrong = held[(held < 0) | (held >= most)][0]
                raise IndexError(f"{label}: expected relations from 0 to {most - 1}, got {wrong}")
        return types.long()

    def _summed(self, edges: Edges, x: Tensor, types: Tensor, weight: Tensor) -> Tensor:
        """Return the sums over relations of transformed reductions."""
        relations = self.num_relations
        if self.comp is not None:
            weight = (self.comp @ weight.flatten(1)).view(relations, *weight.shape[1:])
        x = edges.sources(x)
        width = weight.shape[-1] if not x.is_floating_point() else x.shape[1]
        rows = edges.num_dst * relations
        if self._multiplies_first(edges, x, weight):
            return self._of_messages(edges, x, types, weight)
        if not is_tracing(x) and rows * width > _LARGE and rows > 4 * edges.count:
            return self._one_by_one(edges, x, types, weight)
        if not x.is_floating_point():
            each = types * weight.shape[-2] + x.index_select(0, edges.src).long()
            messages = weight.flatten(0, 1).index_select(0, each)
            own = torch.arange(edges.count, device=types.device)
            index = torch.stack([own, edges.dst.long() * relations + types])
            grouped = Edges(index, None, rows, 1, edges.given)
            reduced = self._reduced(grouped, messages, None)
            return reduced.view(-1, relations, width).sum(1)
        grouped = by_relation(edges, types, relations, x.shape[0])
        reduced = self._aggregated(grouped, x, None)
        if self.num_blocks is None:
            return reduced.view(-1, relations * width) @ weight.flatten(0, 1)
        reduced = reduced.view(-1, *weight.shape[:3])
        return torch.einsum("nrbi,rbio->nbo", reduced, weight).flatten(1)

    def _multiplies_first(self, edges: Edges, x: Tensor, weight: Tensor) -> bool:
        """Return whether products of the edges are fewer than those of nodes and relations."""
        linear = self.aggr_module is None and self.aggr in _LINEAR and self.num_blocks is None
        plain = x.is_cpu and x.dtype == weight.dtype and x.dtype in DTYPES
        packed = isinstance(edges.graph, Graph) and not is_tracing(x)
        return linear and plain and packed and edges.num_dst * self.num_relations > 2 * edges.count

    def _of_messages(self, edges: Edges, x: Tensor, types: Tensor, weight: Tensor) -> Tensor:
        """Reduce messages that are products with the matrix of the relation of their edge."""
        graph = edges.graph
        assert graph is not None
        relations = self.num_relations
        of_types = types_of_sources(edges, types, relations, x.shape[0])
        share = None
        if self.aggr == "mean":
            places = edges.dst.long() * relations + types
            _, which, counts = torch.unique(places, return_inverse=True, return_counts=True)
            share = counts.to(x.dtype).reciprocal().index_select(0, which)
        messages = _ops.segment_matmul(of_types, x, weight)
        return _ops.aggregate(graph, None, messages, share, reduce="sum")

    def _one_by_one(self, edges: Edges, x: Tensor, types: Tensor, weight: Tensor) -> Tensor:
        out = weight.new_zeros(edges.num_dst, self.out_channels)
        for relation in range(self.num_relations):
            some = replace(edges, index=edges.index[:, types == relation], graph=None)
            matrix = weight[relation]
            if not x.is_floating_point():
                out = out + self._reduced(some, matrix.index_select(0, x), None)
                continue
            reduced = self._reduced(some, x, None)
            if self.num_blocks is None:
                out = out + reduced @ matrix
            else:
                blocks = reduced.view(-1, *matrix.shape[:2])
                out = out + torch.einsum("nbi,bio->nbo", blocks, matrix).flatten(1)
        return out

    def _check_width(self, x: Tensor, width: int) -> None:
        """Refuse features of another width."""
        if x.shape[1] != width:
            raise ValueError(
                f"{self._label}: x: expected {width} columns, got shape {tuple(x.shape)}"
            )

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, "
            f"num_relations={self.num_relations})"
        )


class RGCNConv(Relational):
    r"""Relational graph convolution, a replacement for PyTorch Geometric's ``RGCNConv``.

    .. math::

        x'_i = W_0 x_i + \sum_r W_r \operatorname{aggr}_{j \in N_r(i)} x_j

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the features, or of those of sources and destinations; the number of nodes if
        these have no features.
    out_channels : int
    num_relations : int
    num_bases : int, optional
        Number of matrices that those of the relations are combinations of.
    num_blocks : int, optional
        Number of diagonal blocks of the matrices.
    aggr : {"mean", "add", "sum", "max", "min"}, or what PyTorch Geometric has
    root_weight : bool
        Whether to add the root term W_0 x_i.
    is_sorted : bool
        Without effect: edges may have any order.
    bias : bool
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Schlichtkrull et al., Modeling relational data with graph convolutional networks,
    arXiv:1703.06103.
    """

    weight: Parameter
    root: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        num_relations: int,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        aggr: Aggr = "mean",
        root_weight: bool = True,
        is_sorted: bool = False,
        bias: bool = True,
        *,
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        super().__init__(aggr, flow, kwargs)
        left, right = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        if num_bases is not None and num_blocks is not None:
            raise ValueError(f"{self._label}: num_blocks: expected None where num_bases is given")
        if num_blocks is not None and (left % num_blocks or out_channels % num_blocks):
            raise ValueError(
                f"{self._label}: num_blocks: expected a divisor of in_channels={left} and "
                f"out_channels={out_channels}, got {num_blocks}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.num_relations = num_relations
        self.num_bases = num_bases
        self.num_blocks = num_blocks
        self.is_sorted = is_sorted
        self.in_channels_l = left
        shape: tuple[int, ...] = num_bases or num_relations, left, out_channels
        if num_blocks is not None:
            shape = num_relations, num_blocks, left // num_blocks, out_channels // num_blocks
        self.weight = Parameter(torch.empty(shape))
        comp = None if num_bases is None else Parameter(torch.empty(num_relations, num_bases))
        self.register_parameter("comp", comp)
        root = Parameter(torch.empty(right, out_channels)) if root_weight else None
        self.register_parameter("root", root)
        self.register_parameter("bias", Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        for weight in self.weight, self.comp, self.root:
            glorot(weight)
        zeros(self.bias)

    def forward(self, x: Nodes, edge_index: EdgeIndex, edge_type: Tensor | None = None) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor, None or (tensor or None, tensor)
            Features of the nodes, or of sources and destinations. In place of features, integers
            are rows of the matrices, and None is one row for each node.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_type : tensor of integers
            The relation of each edge.
        """
        left, right = self._nodes(x)
        ends = left.shape[0], right.shape[0]
        like = left if left.is_floating_point() else self.weight
        edges = self._edges_between(edge_index, ends, like, self.in_channels_l)
        out = self._summed(edges, left, self._types(edges, edge_type), self.weight)
        if self.root is not None:
            floating = right.is_floating_point()
            out = out + (right @ self.root if floating else self.root.index_select(0, right))
        return out if self.bias is None else out + self.bias

    def _nodes(self, x: Nodes) -> tuple[Tensor, Tensor]:
        """Return features or row numbers of sources and destinations."""
        left, right = x if isinstance(x, tuple | list) else (x, None)
        if left is None:
            left = torch.arange(self.in_channels_l, device=self.weight.device)
        right = left if right is None else right
        for part in left, right:
            tensor = check_device(f"{self._label}: x", part)
            if not tensor.is_floating_point():
                integers(f"{self._label}: x", tensor)
        if left.is_floating_point():
            found, _ = self._pair((left, right))
            self._check_width(found, self.in_channels_l)
        elif self.num_blocks is not None:
            raise ValueError(f"{self._label}: x: expected features where num_blocks is given")
        return left, right
