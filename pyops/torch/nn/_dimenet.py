"""Shared parts of the layers of DimeNet++: activations, weight initialization, the envelope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import ModuleList

import pyops.torch as pt

from .._call import DTYPES, is_tracing

Activation = Callable[[Tensor], Tensor]
Block = TypeVar("Block", bound=torch.nn.Module)

if TYPE_CHECKING:

    class Blocks(ModuleList, Generic[Block]):
        """List of modules of one class."""

        def __init__(self, modules: Iterable[Block]) -> None: ...
        def __iter__(self) -> Iterator[Block]: ...
else:
    Blocks = ModuleList


def _by_torch(x: Tensor) -> bool:
    """Return whether torch evaluates elementwise functions: if it compiles, it fuses them."""
    return is_tracing() or x.dtype not in DTYPES


def swish(x: Tensor) -> Tensor:
    """Return x times its logistic function."""
    y: Tensor = torch.nn.functional.silu(x) if _by_torch(x) else pt.silu(x)
    return y


def product(x: Tensor, y: Tensor) -> Tensor:
    """Return the elementwise product of two tensors of the same shape."""
    z: Tensor = x * y if _by_torch(x) else pt.multiply(x, y)
    return z


def activation(query: str | Activation) -> Activation:
    """Resolve the name of an activation of `torch.nn` or swish; return a callable as it is."""
    if not isinstance(query, str):
        return query

    def plain(name: str) -> str:
        return name.lower().translate({ord(c): None for c in "-_ "})

    known: dict[str, Callable[[], Activation]] = {
        name: kind
        for name, kind in vars(torch.nn.modules.activation).items()
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module)
    }
    for name, kind in known.items():
        if plain(query) in (plain(name), plain(name).replace("act", "")):
            return kind()
    if plain(query) == "swish":
        return swish
    raise ValueError(f"act: expected a callable, swish or one of {[*known]}, got {query!r}")


def glorot_orthogonal(weight: Tensor, scale: float = 2.0) -> None:
    """Initialize with a random orthogonal matrix scaled to the Glorot variance."""
    with torch.no_grad():
        torch.nn.init.orthogonal_(weight)
        weight *= (scale / ((weight.size(-2) + weight.size(-1)) * weight.var())).sqrt()


def reset(linear: torch.nn.Linear) -> None:
    """Initialize the weight of a layer at random, and its bias with 0."""
    glorot_orthogonal(linear.weight)
    if linear.bias is not None:
        linear.bias.data.fill_(0)


class Envelope(torch.nn.Module):
    """Smooth cutoff of a basis at distance 1."""

    def __init__(self, exponent: int) -> None:
        super().__init__()
        if isinstance(exponent, bool) or not isinstance(exponent, int) or not 1 <= exponent <= 32:
            raise ValueError(f"envelope_exponent: expected 1 to 32, got {exponent!r}")
        self.p = exponent + 1
        self.a = -(self.p + 1) * (self.p + 2) / 2
        self.b = self.p * (self.p + 2)
        self.c = -self.p * (self.p + 1) / 2

    def forward(self, x: Tensor) -> Tensor:
        power = x.pow(self.p - 1)
        inside = 1.0 / x + power * (self.a + x * (self.b + x * self.c))
        return inside * (x < 1.0).to(x.dtype)
