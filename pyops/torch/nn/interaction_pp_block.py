"""Replacement for PyTorch Geometric's `InteractionPPBlock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor
from torch.nn import Linear

import pyops.torch as pt

from .._host import without_subclass
from ._dimenet import Activation, Blocks, product, reset
from ._edges.edge_lists import check_rows, graph_of_indices
from ._linear import is_linear
from ._reductions import contiguous_gradient
from .residual_layer import ResidualLayer

if TYPE_CHECKING:
    from ...graph import Graph
    from .._graph import TracedGraph


class InteractionPPBlock(torch.nn.Module):
    """Interaction block of DimeNet++, as `torch_geometric.nn.models.dimenet.InteractionPPBlock`.

    `forward` takes the basis of a list of triplets; `on_graph` takes a graph instead of the list.

    Parameters
    ----------
    hidden_channels : int
        Width of the messages.
    int_emb_size : int
        Width of the messages along triplets.
    basis_emb_size : int
        Hidden width of the two layers that map a basis to the width of messages.
    num_spherical, num_radial : int
        Numbers of degrees and of radial functions.
    num_before_skip, num_after_skip : int
        Numbers of residual layers before and after the skip connection.
    act : callable
        Activation.
    """

    def __init__(
        self,
        hidden_channels: int,
        int_emb_size: int,
        basis_emb_size: int,
        num_spherical: int,
        num_radial: int,
        num_before_skip: int,
        num_after_skip: int,
        act: Activation,
    ) -> None:
        super().__init__()
        self.act = act
        self.num_spherical = num_spherical
        self.lin_rbf1 = Linear(num_radial, basis_emb_size, bias=False)
        self.lin_rbf2 = Linear(basis_emb_size, hidden_channels, bias=False)
        self.lin_sbf1 = Linear(num_spherical * num_radial, basis_emb_size, bias=False)
        self.lin_sbf2 = Linear(basis_emb_size, int_emb_size, bias=False)
        self.lin_kj = Linear(hidden_channels, hidden_channels)
        self.lin_ji = Linear(hidden_channels, hidden_channels)
        self.lin_down = Linear(hidden_channels, int_emb_size, bias=False)
        self.lin_up = Linear(int_emb_size, hidden_channels, bias=False)
        self.layers_before_skip = Blocks(
            [ResidualLayer(hidden_channels, act) for _ in range(num_before_skip)]
        )
        self.lin = Linear(hidden_channels, hidden_channels)
        self.layers_after_skip = Blocks(
            [ResidualLayer(hidden_channels, act) for _ in range(num_after_skip)]
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights at random, and biases with 0."""
        for layer in self.lin_rbf1, self.lin_rbf2, self.lin_sbf1, self.lin_sbf2:
            reset(layer)
        for layer in self.lin_kj, self.lin_ji, self.lin_down, self.lin_up:
            reset(layer)
        for residual in self.layers_before_skip:
            residual.reset_parameters()
        reset(self.lin)
        for residual in self.layers_after_skip:
            residual.reset_parameters()

    def forward(
        self, x: Tensor, rbf: Tensor, sbf: Tensor, idx_kj: Tensor, idx_ji: Tensor
    ) -> Tensor:
        """Return the updated messages.

        Parameters
        ----------
        x : tensor, shape (num_edges, hidden_channels)
            Messages.
        rbf : tensor, shape (num_edges, num_radial)
            Radial basis.
        sbf : tensor, shape (num_triplets, num_spherical * num_radial)
            Spherical basis of the triplets.
        idx_kj, idx_ji : tensor of int64, shape (num_triplets,)
            The edges k -> j and j -> i of each triplet.
        """
        caller, edges = "InteractionPPBlock", x.shape[0]
        idx_kj, idx_ji = without_subclass(idx_kj), without_subclass(idx_ji)
        check_rows(caller, edges, {"rbf": rbf})
        graph = graph_of_indices(caller, {"idx_kj": idx_kj, "idx_ji": idx_ji}, edges, edges)
        check_rows(caller, idx_kj.shape[0], {"sbf": sbf})
        messages = self._messages(x, rbf)
        basis = self.lin_sbf1(sbf)
        if is_linear(self.lin_sbf2, biased=False):
            sums = pt.kernel_conv(graph, messages, basis, self.lin_sbf2.weight, kernel="diagonal")
        else:
            factors = self.lin_sbf2(basis)
            sums = pt.aggregate(graph, None, product(pt.edge_update(graph, messages), factors))
        return self._update(x, sums)

    def on_graph(
        self,
        x: Tensor,
        rbf: Tensor,
        radial: Tensor,
        vectors: Tensor,
        graph: Graph | TracedGraph,
        reverse: Tensor | None = None,
    ) -> Tensor:
        """Return the updated messages, without a list of triplets.

        Parameters
        ----------
        x : tensor, shape (num_edges, hidden_channels)
            Messages.
        rbf : tensor, shape (num_edges, num_radial)
            Radial basis.
        radial : tensor, shape (num_edges, num_spherical * num_radial)
            Spherical basis without the angular factor, see `SphericalBasisLayer.radial`.
        vectors : tensor, shape (num_edges, 3)
            Vectors from the destination of each edge to its source.
        graph : pyops.torch.Graph
            The edges j -> i; the triplets are all pairs of edges k -> j and j -> i with k != i.
        reverse : tensor of int64, shape (num_edges,), optional
            Row of the reverse of each edge, as `pyops.torch.radius_graph` returns it. If given, the
            triplets are all pairs but that of an edge and its reverse.

        Notes
        -----
        A periodic cell needs `reverse`: in one shorter than about twice the cutoff, k != i leaves
        out other images of i too, and the energy of an atom depends on the size of the cell.
        """
        for name in "lin_sbf1", "lin_sbf2":
            layer = getattr(self, name)
            if not _inherits(layer) or layer.bias is not None:
                raise NotImplementedError(
                    f"InteractionPPBlock: {name}: expected a torch.nn.Linear without bias where "
                    f"triplets are not listed, got {layer}"
                )
        first = contiguous_gradient(self.lin_sbf1.weight)
        weights = torch.cat([first.T, self.lin_sbf2.weight])
        sums = pt.dimenet_aggregate(
            graph,
            vectors,
            radial,
            self._messages(x, rbf),
            weights,
            num_spherical=self.num_spherical,
            exclude="node" if reverse is None else "image",
            reverse=reverse,
        )
        return self._update(x, sums)

    def _messages(self, x: Tensor, rbf: Tensor) -> Tensor:
        """Return the messages of edges k -> j to triplets."""
        if is_linear(self.lin_rbf1, biased=False) and is_linear(self.lin_rbf2, biased=False):
            scale = rbf @ (self.lin_rbf2.weight @ self.lin_rbf1.weight).T
        else:
            scale = self.lin_rbf2(self.lin_rbf1(rbf))
        return self.act(self.lin_down(product(self.act(self.lin_kj(x)), scale)))

    def _update(self, x: Tensor, sums: Tensor) -> Tensor:
        h = self.act(self.lin_ji(x)) + self.act(self.lin_up(sums))
        for layer in self.layers_before_skip:
            h = layer(h)
        h = self.act(self.lin(h)) + x
        for layer in self.layers_after_skip:
            h = layer(h)
        return h


def _inherits(layer: object) -> TypeGuard[Linear]:
    """Return whether a layer has the forward of `torch.nn.Linear`, as if parametrized."""
    if not isinstance(layer, Linear) or "forward" in vars(layer):
        return False
    return type(layer).forward is Linear.forward
