"""Replacement for PyTorch Geometric's `OutputPPBlock`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Linear

import pyops.torch as pt

from .._host import without_subclass
from ._dimenet import Activation, Blocks, glorot_orthogonal, product, reset
from ._edges.edge_lists import check_rows, graph_of_indices
from ._functions import groups_of

if TYPE_CHECKING:
    from ...graph import Graph
    from .._graph import TracedGraph


class OutputPPBlock(torch.nn.Module):
    """Output block of DimeNet++, as `torch_geometric.nn.models.dimenet.OutputPPBlock`.

    Parameters
    ----------
    num_radial : int
        Number of radial functions.
    hidden_channels : int
        Width of the messages.
    out_emb_channels : int
        Width of the layers on the atoms.
    out_channels : int
        Width of the output.
    num_layers : int
        Number of layers on the atoms.
    act : callable
        Activation.
    output_initializer : {"zeros", "glorot_orthogonal"}
        Initialization of the weight of the last layer.
    """

    def __init__(
        self,
        num_radial: int,
        hidden_channels: int,
        out_emb_channels: int,
        out_channels: int,
        num_layers: int,
        act: Activation,
        output_initializer: str = "zeros",
    ) -> None:
        if output_initializer not in ("zeros", "glorot_orthogonal"):
            raise ValueError(
                "OutputPPBlock: output_initializer: expected 'zeros' or 'glorot_orthogonal', "
                f"got {output_initializer!r}"
            )
        super().__init__()
        self.act = act
        self.output_initializer = output_initializer
        self.lin_rbf = Linear(num_radial, hidden_channels, bias=False)
        self.lin_up = Linear(hidden_channels, out_emb_channels, bias=False)
        self.lins = Blocks([Linear(out_emb_channels, out_emb_channels) for _ in range(num_layers)])
        self.lin = Linear(out_emb_channels, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights at random, and biases with 0."""
        for layer in self.lin_rbf, self.lin_up, *self.lins:
            reset(layer)
        if self.output_initializer == "zeros":
            self.lin.weight.data.fill_(0)
        else:
            glorot_orthogonal(self.lin.weight)

    def forward(self, x: Tensor, rbf: Tensor, i: Tensor, num_nodes: int | None = None) -> Tensor:
        """Return the outputs of atoms.

        Parameters
        ----------
        x : tensor, shape (num_edges, hidden_channels)
            Messages.
        rbf : tensor, shape (num_edges, num_radial)
            Radial basis.
        i : tensor of int64, shape (num_edges,)
            Destination atom of each edge.
        num_nodes : int, optional
            Number of atoms; one more than the largest in i if not given.
        """
        i = without_subclass(i)
        num_nodes = groups_of("OutputPPBlock: num_nodes", i, num_nodes, "i")
        graph = graph_of_indices("OutputPPBlock", {"i": i}, num_nodes, num_nodes)
        check_rows("OutputPPBlock", i.shape[0], {"x": x, "rbf": rbf})
        return self.on_graph(x, rbf, graph)

    def on_graph(self, x: Tensor, rbf: Tensor, graph: Graph | TracedGraph) -> Tensor:
        """Return the outputs of atoms, for a graph whose edges have the destinations i."""
        y = self.lin_up(pt.aggregate(graph, None, product(self.lin_rbf(rbf), x)))
        for layer in self.lins:
            y = self.act(layer(y))
        result: Tensor = self.lin(y)
        return result
