"""Replacement for neuraloperator's `LinearChannelMLP`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeGuard

from torch import Tensor, nn
from torch.nn import functional

from ._linear import is_plain

Activation = Callable[[Tensor], Tensor]


class LinearChannelMLP(nn.Module):
    """Multilayer perceptron along the last axis.

    Equivalent to ``neuralop.layers.channel_mlp.LinearChannelMLP``.

    Parameters
    ----------
    layers : list of int
        Widths, from that of the input to that of the output.
    non_linearity : callable
        The activation, after each layer but the last.
    dropout : float
        Probability of dropout after each layer.
    """

    def __init__(
        self,
        layers: Sequence[int],
        non_linearity: Activation = functional.gelu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_layers = len(layers) - 1
        if self.n_layers < 1:
            raise ValueError(f"LinearChannelMLP: layers: expected two widths or more, got {layers}")
        self.non_linearity = non_linearity
        self.dropout = (
            nn.ModuleList([nn.Dropout(dropout) for _ in range(self.n_layers)])
            if dropout > 0
            else None
        )
        self.fcs = nn.ModuleList(map(nn.Linear, layers[:-1], layers[1:]))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of features [..., layers[0]], as [..., layers[-1]]."""
        for i, layer in enumerate(self.fcs):
            x = layer(x)
            if i < self.n_layers - 1:
                x = self.non_linearity(x)
            if self.dropout is not None:
                x = self.dropout[i](x)
        return x


class LinearNetwork(NamedTuple):
    """Linear layers with an activation between them."""

    layers: list[nn.Linear]
    activation: Activation


def linear_network(network: nn.Module) -> LinearNetwork | None:
    """Return the layers if a network is a plain `LinearChannelMLP` without dropout, else None."""
    if not _is_mlp(network) or network.dropout is not None or not is_plain(network):
        return None
    layers = [layer for layer in network.fcs if isinstance(layer, nn.Linear) and _is_exact(layer)]
    if len(layers) < len(network.fcs):
        return None
    return LinearNetwork(layers, network.non_linearity)


def _is_mlp(network: nn.Module) -> TypeGuard[LinearChannelMLP]:
    """Return whether a network is a `LinearChannelMLP`, or that of neuraloperator."""
    kind = type(network)
    other = "neuralop.layers.channel_mlp", "LinearChannelMLP"
    return kind is LinearChannelMLP or (kind.__module__, kind.__qualname__) == other


def _is_exact(layer: nn.Linear) -> bool:
    return type(layer) is nn.Linear and is_plain(layer)
