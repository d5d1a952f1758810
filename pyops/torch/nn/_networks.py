"""Networks that `edge_mlp` and `edge_network` compute: linear layers and activations between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..._network_order import in_order
from ...ops.edge_mlp import edge_mlp
from ._linear import AnyLinear, is_linear, is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._call.types import Values

Activation: TypeAlias = Literal["relu", "silu", "gelu", "tanh"]
_ACTIVATIONS: dict[type[torch.nn.Module], Activation] = {
    torch.nn.ReLU: "relu",
    torch.nn.SiLU: "silu",
    torch.nn.GELU: "gelu",
    torch.nn.Tanh: "tanh",
}
_MOST_LAYERS = edge_mlp.signature.options["depth"].bounds.most
"""Hidden layers that the operators take."""
_EPSILON = 1e-5
"""Epsilon of their layer norm."""


def activation_of(module: torch.nn.Module) -> Activation | None:
    """Return the name of an activation of the operators, None for other modules."""
    found = _ACTIVATIONS.get(type(module))
    if found is None or not is_plain(module):
        return None
    return found if getattr(module, "approximate", "none") == "none" else None


class Layers(NamedTuple):
    """Layers after the first linear one, of which all hidden ones have the same width."""

    hidden: int
    activation: Activation
    linears: list[AnyLinear]
    norm: torch.nn.LayerNorm | None

    def params(self, weights: Sequence[Tensor], bias: Tensor | None) -> Tensor:
        """Return the block of `pyops.blocks.pack_edge_network`.

        `weights` are those of the first layer for sources, destinations and edges.
        """
        parts = in_order(
            weights,
            [layer.weight for layer in self.linears],
            [_bias(weights[0], bias), *(_bias(layer.weight, layer.bias) for layer in self.linears)],
            [] if self.norm is None else [self.norm.weight, self.norm.bias],
        )
        return torch.cat([part.flatten() for part in parts])

    @property
    def options(self) -> Values:
        """Options of the operators."""
        return {
            "hidden": self.hidden,
            "depth": len(self.linears),
            "activation": self.activation,
            "norm": "none" if self.norm is None else "layer",
        }


def _bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    return weight.new_zeros(weight.shape[0]) if bias is None else bias


def layers_after(first: int, modules: Sequence[torch.nn.Module]) -> Layers | None:
    """Return the layers that follow a linear one with `first` units, None if there are others.

    They are an activation and a linear layer, any number of times, and a layer norm or none.
    """
    rest = [*modules]
    norm = rest[-1] if rest else None
    if isinstance(norm, torch.nn.LayerNorm):
        rest.pop()
    else:
        norm = None
    linears = [layer for layer in rest[1::2] if is_linear(layer)]
    activations = {activation_of(module) for module in rest[::2]}
    if len(activations) != 1 or not 1 <= 2 * len(linears) == len(rest) <= 2 * _MOST_LAYERS:
        return None
    (activation,) = activations
    if activation is None or 0 in linears[-1].weight.shape:
        return None
    shapes = {tuple(layer.weight.shape) for layer in linears[:-1]}
    if shapes - {(first, first)} or linears[-1].weight.shape[1] != first:
        return None
    if norm is not None and not _is_supported(norm, linears[-1].weight.shape[0]):
        return None
    return Layers(first, activation, linears, norm)


def _is_supported(norm: torch.nn.LayerNorm, width: int) -> bool:
    if type(norm) is not torch.nn.LayerNorm or not is_plain(norm):
        return False
    affine = norm.elementwise_affine and norm.bias is not None
    return affine and norm.normalized_shape == (width,) and norm.eps == _EPSILON


def network_of(module: object) -> tuple[AnyLinear, Layers] | None:
    """Return the first and the other layers of a network of the operators, else None.

    That is a plain `Sequential`, or the `MLP` of PyTorch Geometric without norms and dropout.
    """
    modules = plain_modules(module)
    if not modules or not is_linear(first := modules[0]):
        return None
    layers = layers_after(first.weight.shape[0], modules[1:])
    return None if layers is None else (first, layers)


def plain_modules(network: Any) -> list[torch.nn.Module]:
    """Return the modules that a network only calls one after the other, [] for others."""
    kind = type(network)
    if kind is torch.nn.Sequential:
        return [*network] if is_plain(network) else []
    if (kind.__module__, kind.__qualname__) != ("torch_geometric.nn.models.mlp", "MLP"):
        return []
    plain = is_plain(network) and network.plain_last and not any(network.dropout)
    if not plain or any(type(norm).__name__ != "Identity" for norm in network.norms):
        return []
    modules: list[torch.nn.Module] = []
    for layer in network.lins:
        modules += [network.act, layer]
    return modules[1:]
