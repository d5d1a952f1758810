"""Parts of the parameters of a network of entries: with their tangents, and sums of gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ._array import DeviceArray, store
from ._convolution import RowSums

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._declared import EdgeMlp, EdgeNetwork
    from ._runtime import Runtime

LAYER_NORM = 2
NODES, EDGES = ("x_src", "x_dst"), "edge_features"
Part = TypeVar("Part")


class Dual(NamedTuple):
    """An array with its tangent, None if that is 0."""

    value: DeviceArray
    tangent: DeviceArray | None = None

    def map(self, function: Callable[[DeviceArray], DeviceArray]) -> Dual:
        """Return the images of both under a linear function."""
        tangent = None if self.tangent is None else function(self.tangent)
        return Dual(function(self.value), tangent)

    def rows(self, batch: slice) -> Dual:
        return self.map(lambda array: array[batch])

    @property
    def T(self) -> Dual:  # noqa: N802
        return self.map(lambda array: array.T)


@dataclass(frozen=True)
class Parts(Generic[Part]):
    """One object for each part of a parameter block."""

    inputs: dict[str, Part]
    """Weights of the first layer, by input."""
    weights: list[Part]
    """Weights of the other layers."""
    biases: list[Part]
    norm: list[Part]
    """Scale and shift, nothing without norm."""

    def every(self) -> list[Part]:
        return [*self.inputs.values(), *self.weights, *self.biases, *self.norm]


def parts_of(
    a: EdgeMlp | EdgeNetwork, make: Callable[[slice, tuple[int, ...]], Part]
) -> Parts[Part]:
    """Return what `make` returns for the position and the shape of each part of a block."""
    position = 0

    def part(*shape: int) -> Part:
        nonlocal position
        start, position = position, position + math.prod(shape)
        return make(slice(start, position), shape)

    widths = zip((*NODES, EDGES), (a.src_width, a.dst_width, a.edge_width), strict=True)
    inputs = {name: part(a.hidden, width) for name, width in widths}
    weights, biases = [], [part(a.hidden)]
    for width in [a.hidden] * (a.depth - 1) + [a.out_features]:
        weights.append(part(width, a.hidden))
        biases.append(part(width))
    norm = [part(a.out_features) for _ in range(2 if a.norm == LAYER_NORM else 0)]
    return Parts(inputs, weights, biases, norm)


class Sum:
    """Gradient by one part of the parameters: sum over batches, of several in float64."""

    def __init__(self, rt: Runtime, batches: Sequence[int], out: DeviceArray) -> None:
        self.rt, self.batches, self.out = rt, batches, out
        self.total: DeviceArray | None = None
        self.rows: RowSums | None = None

    def add(self, term: DeviceArray | None) -> None:
        """Add a term; None is 0."""
        if term is not None:
            self.total = term if self.total is None else self.total + term.astype("d")

    def add_rows(self, rows: DeviceArray | None) -> None:
        """Add the sum over the entries of a batch; None is 0."""
        if rows is not None:
            self.rows = self.rows or RowSums(self.rt, self.batches, self.out.size)
            self.rows.add(rows)

    def store(self, accumulate: bool) -> None:
        if self.rows is not None:
            self.rows.store(self.out, accumulate)
        else:
            store(self.out, [] if self.total is None else [self.total], accumulate)
