"""Replacements for the layers of PyTorch Geometric that called pylibcugraphops.

They share the form of their inputs, so they are one module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from ..._call.arrays import check_size
from .._host import without_subclass
from ._aggregating import Aggregating
from ._edges.edge_index import has_sizes, is_sparse
from ._linear import glorot, zeros
from .gat_conv import LinearAttention
from .rgcn_conv import Relational

if TYPE_CHECKING:
    from ._edges.edge_index import EdgeIndex
    from ._messages import Messages


def _check_reduction(layer: str, aggr: str, known: tuple[str, ...]) -> None:
    """Refuse reductions that the original layer lacks."""
    if aggr not in known:
        raise ValueError(
            f"pyops.torch.nn.{layer}: aggr: expected one of {', '.join(known)}, got {aggr!r}"
        )


def _destinations(layer: Messages, x: Tensor, edge_index: EdgeIndex, degree: int | None) -> int:
    """Return the number of destinations: the first nodes, or all."""
    if degree is not None:
        check_size(f"{layer._label}: max_num_neighbors", degree, 0)
    if not isinstance(x, Tensor):
        raise TypeError(f"{layer._label}: x: expected a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{layer._label}: x: expected floating-point features, got {x.dtype}")
    layer._pair(x)
    count: int | None = None
    if has_sizes(edge_index):
        count = edge_index.sparse_size()[1]
    elif isinstance(edge_index, tuple | list):
        count = len(edge_index[0]) - 1
    elif not isinstance(edge_index, Tensor):
        count = edge_index.num_dst
    elif is_sparse(without_subclass(edge_index)):
        count = edge_index.shape[0]
    return x.shape[0] if count is None else count


class CuGraphSAGEConv(Aggregating):
    r"""GraphSAGE, a replacement for PyTorch Geometric's ``CuGraphSAGEConv``.

    .. math:: x'_i = W [\operatorname{aggr}_{j \in N(i)} x_j, x_i] + b

    If an `EdgeIndex`, a sparse matrix or a graph has fewer destinations than sources, these are the
    first of the sources, as in sampled neighbourhoods.

    Parameters
    ----------
    in_channels, out_channels : int
    aggr : {"mean", "sum", "min", "max"}
    normalize : bool
        Whether results are divided by their norm.
    root_weight : bool
        Whether the features x_i of a node itself are read.
    project : bool
        Whether a linear layer and a ReLU are applied to the features first.
    bias : bool

    Raises
    ------
    ValueError
        If `aggr` is none of the reductions.

    References
    ----------
    Hamilton et al., Inductive representation learning on large graphs, arXiv:1706.02216.
    """

    _takes_pairs = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: Literal["mean", "sum", "min", "max"] = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
    ) -> None:
        _check_reduction("CuGraphSAGEConv", aggr, ("mean", "sum", "min", "max"))
        super().__init__(aggr, "source_to_target", {})
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.normalize = normalize
        self.root_weight = root_weight
        self.project = project
        if project:
            self.pre_lin = torch.nn.Linear(in_channels, in_channels)
        width = 2 * in_channels if root_weight else in_channels
        self.lin = torch.nn.Linear(width, out_channels, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        if self.project:
            self.pre_lin.reset_parameters()
        self.lin.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: EdgeIndex, max_num_neighbors: int | None = None
    ) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor
            Features of the nodes.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        max_num_neighbors : int, optional
            Accepted but unused; the edges determine it.
        """
        count = _destinations(self, x, edge_index, max_num_neighbors)
        if self.project:
            x = self._applied("x", self.pre_lin, x).relu()
        rows = self._neighbours((x, x[:count]), edge_index, None)
        if self.root_weight:
            rows = torch.cat([rows, x[:count]], 1)
        out = self._applied("x", self.lin, rows)
        return torch.nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, aggr={self.aggr})"


class CuGraphGATConv(LinearAttention):
    r"""Graph attention, a replacement for PyTorch Geometric's ``CuGraphGATConv``.

    That of `GATConv` without self loops, dropout and edge features, with one parameter for the
    attention weights of sources and destinations. Destinations are those of `CuGraphSAGEConv`.

    Parameters
    ----------
    in_channels, out_channels : int
        Width of the features, and of a head.
    heads : int
    concat : bool
        Whether heads are concatenated; else averaged.
    negative_slope : float
    bias : bool

    References
    ----------
    Velickovic et al., Graph attention networks, arXiv:1710.10903.
    """

    _takes_pairs = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, 0.0, None, "add", "source_to_target", {}
        )
        self.negative_slope = negative_slope
        inner, outer = self._widths
        self.lin = torch.nn.Linear(in_channels, inner, bias=False)
        self.att = Parameter(torch.empty(2 * inner))
        self.register_parameter("bias", Parameter(torch.empty(outer)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        self.lin.reset_parameters()
        gain = torch.nn.init.calculate_gain("relu")
        with torch.no_grad():
            torch.nn.init.xavier_normal_(self.att.view(2, self.heads, self.out_channels), gain)
        zeros(self.bias)

    def forward(
        self,
        x: Tensor,
        edge_index: EdgeIndex,
        edge_attr: None = None,
        max_num_neighbors: int | None = None,
    ) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor
            Features of the nodes.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_attr : None
            The layer has no attention weights for edge features.
        max_num_neighbors : int, optional
            Accepted but unused; the edges determine it.
        """
        if edge_attr is not None:
            raise ValueError(
                f"{self._label}: edge_attr: expected None, as the layer has no attention weights "
                f"for edge features, got {type(edge_attr).__name__}"
            )
        count = _destinations(self, x, edge_index, max_num_neighbors)
        x = self._applied("x", self.lin, x)
        ends = x.shape[0], count
        edges = self._edges(edge_index, ends, None, None, x, self._route)
        source, target = self.att.view(2, 1, self.heads, self.out_channels)
        out, _ = self._attend(edges, x, x[:count], (source, target), None, None, False)
        return out if self.bias is None else out + self.bias

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


class CuGraphRGCNConv(Relational):
    r"""Relational graph convolution, a replacement for PyTorch Geometric's ``CuGraphRGCNConv``.

    That of `RGCNConv`, whose root matrix is the last of `weight`. Destinations are those of
    `CuGraphSAGEConv`.

    Parameters
    ----------
    in_channels, out_channels : int
    num_relations : int
    num_bases : int, optional
        Number of matrices that those of the relations are combinations of.
    aggr : {"mean", "add", "sum"}
    root_weight : bool
        Whether to add the root term.
    bias : bool

    Raises
    ------
    ValueError
        If `aggr` is none of the reductions.

    References
    ----------
    Schlichtkrull et al., Modeling relational data with graph convolutional networks,
    arXiv:1703.06103.
    """

    in_channels: int
    bias: Parameter | None
    num_blocks = None
    _takes_pairs = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        num_bases: int | None = None,
        aggr: Literal["mean", "add", "sum"] = "mean",
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        _check_reduction("CuGraphRGCNConv", aggr, ("mean", "add", "sum"))
        super().__init__(aggr, "source_to_target", {})
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.num_relations = num_relations
        self.num_bases = num_bases
        self.root_weight = root_weight
        matrices = num_relations if num_bases is None else num_bases
        shape = matrices + int(root_weight), in_channels, out_channels
        self.weight = Parameter(torch.empty(shape))
        comp = None if num_bases is None else Parameter(torch.empty(num_relations, num_bases))
        self.register_parameter("comp", comp)
        self.register_parameter("bias", Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        weight = self.weight.detach()
        glorot(weight[:-1] if self.root_weight else weight)
        glorot(self.comp)
        if self.root_weight:
            glorot(weight[-1])
        zeros(self.bias)

    def forward(
        self,
        x: Tensor,
        edge_index: EdgeIndex,
        edge_type: Tensor,
        max_num_neighbors: int | None = None,
    ) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor
            Features of the nodes.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_type : tensor of integers
            The relation of each edge.
        max_num_neighbors : int, optional
            Accepted but unused; the edges determine it.
        """
        count = _destinations(self, x, edge_index, max_num_neighbors)
        self._check_width(x, self.in_channels)
        edges = self._edges_between(edge_index, (x.shape[0], count), x, x.shape[1])
        matrices = self.weight[:-1] if self.root_weight else self.weight
        out = self._summed(edges, x, self._types(edges, edge_type), matrices)
        if self.root_weight:
            out = out + x[:count] @ self.weight[-1]
        return out if self.bias is None else out + self.bias
