"""Replacement for PyTorch Geometric's `SAGEConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._aggregating import Aggregating
from ._linear import Linear
from ._messages import FLOWS

if TYPE_CHECKING:
    from torch import Tensor

    from ._edges.edge_index import EdgeIndex
    from ._messages import Aggr, Flow, Pair, Size


class SAGEConv(Aggregating):
    r"""GraphSAGE, a replacement for PyTorch Geometric's ``SAGEConv``.

    .. math:: x'_i = W_1 x_i + W_2 \operatorname{aggr}_{j \in N(i)} x_j

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the features, or of those of sources and destinations; -1 to infer it at first use.
    out_channels : int
    aggr : {"mean", "add", "sum", "max", "min"}, or what PyTorch Geometric has
        Reduction of the neighbours, or a list of these.
    normalize : bool
        Whether results are divided by their norm.
    root_weight : bool
        Whether to add the root term W_1 x_i.
    project : bool
        Whether a linear layer and a ReLU are applied to the features of the sources first.
    bias : bool
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    References
    ----------
    Hamilton et al., Inductive representation learning on large graphs, arXiv:1706.02216.
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: Aggr = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        *,
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        left, right = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        if aggr == "lstm":
            options = {"in_channels": left, "out_channels": left}
            given = kwargs.get("aggr_kwargs")
            kwargs["aggr_kwargs"] = options | (given if isinstance(given, dict) else {})
        super().__init__(aggr, flow, kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.normalize = normalize
        self.root_weight = root_weight
        self.project = project
        if project:
            if left <= 0:
                raise ValueError(f"{self._label}: project: expected False where in_channels is -1")
            self.lin = Linear(left, left)
        width_of = getattr(self.aggr_module, "get_out_channels", None)  # of several aggregations
        width = left if width_of is None else width_of(left)
        self.lin_l = Linear(width, out_channels, bias=bias)
        if root_weight:
            self.lin_r = Linear(right, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        if self.project:
            self.lin.reset_parameters()
        self.lin_l.reset_parameters()
        if self.root_weight:
            self.lin_r.reset_parameters()

    def forward(self, x: Tensor | Pair, edge_index: EdgeIndex, size: Size = None) -> Tensor:
        """Return the new features of the destinations.

        Parameters
        ----------
        x : tensor or (tensor, tensor or None)
            Features of the nodes, or of sources and destinations.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`. The values of a sparse matrix are edge weights.
        size : (int, int), optional
            Numbers of sources and destinations.
        """
        left, right = self._pair(x)
        if self.flow != FLOWS[0] and not self.root_weight:
            right = None  # unused, and its number of rows may differ
        if self.project:
            left = self._applied("x", self.lin, left).relu()
        out = self._applied("x", self.lin_l, self._neighbours((left, right), edge_index, size))
        if self.root_weight and right is not None:
            out = out + self._applied("x", self.lin_r, right)
        return torch.nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, aggr={self.aggr})"
