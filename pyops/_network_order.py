"""Order of the parts of a block of `edge_mlp` and `edge_network`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Part = TypeVar("Part")


def in_order(
    first: Sequence[Part], weights: Sequence[Part], biases: Sequence[Part], norm: Sequence[Part]
) -> list[Part]:
    """Return the parts of a network, or what belongs to them, in the order of the block.

    `first` are the weights of the first layer for sources, destinations and edges, `weights` those
    of the other layers, `biases` those of all layers; `norm` are scale and shift, or none.
    """
    parts = [*first, biases[0]]
    for number, weight in enumerate(weights, start=1):
        parts += [weight, biases[number]]
    return [*parts, *norm]
