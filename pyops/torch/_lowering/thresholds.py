"""Functions of torch with thresholds, whose slopes there are those of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import UnsupportedError

if TYPE_CHECKING:
    from .builder import Builder, Ref

_EXACT = 20.0
"""Threshold from which softplus in float32 is x, in torch and without a threshold."""


def clamp(
    builder: Builder, x: Ref, min: Ref | float | None = None, max: Ref | float | None = None
) -> Ref:
    """Write a clamp; at its bounds the slope by x is 1."""
    x = x if min is None else _bounded(builder, x, min, "maximum", "minimum", 1.0)
    return x if max is None else _bounded(builder, x, max, "minimum", "maximum", -1.0)


def _bounded(
    builder: Builder, x: Ref, bound: Ref | float, inner: str, outer: str, sign: float
) -> Ref:
    """Write the extreme of x and a bound, and at the bound a term of value 0.

    Extremes of equal values have half of the slope for each; the term has the other half by x, and
    takes away that by the bound. It is bounded elsewhere, as it is multiplied by 0 there.
    """
    y = builder.binary(inner, x, bound)
    if isinstance(bound, int | float):
        beyond: Ref | float = bound + sign * (1.0 + abs(bound))
    else:
        beyond = builder.add(bound, builder.multiply(_size(builder, bound), sign))
    offset = builder.binary("subtract", builder.binary(outer, y, beyond), bound)
    at_bound = builder.binary("equal", x, bound)
    return builder.add(y, builder.multiply(at_bound, offset))


def _size(builder: Builder, x: Ref) -> Ref:
    return builder.add(builder.unary("abs", x), 1.0)


def softplus(builder: Builder, x: Ref, beta: float = 1.0, threshold: float = 20.0) -> Ref:
    """Write a softplus, which is x where beta x is above the threshold."""
    if threshold < 0 or beta <= 0:
        raise UnsupportedError("softplus: expected a beta above 0 and a threshold from 0, "
                               f"got {beta} and {threshold}")  # fmt: skip
    scaled = x if beta == 1 else builder.multiply(x, beta)
    y = builder.unary("softplus", scaled)
    if threshold < _EXACT or builder.dtype == "float64":
        ramp = builder.unary("relu", scaled)
        most = 2.0 * max(threshold, _EXACT)
        held = builder.binary("minimum", scaled, most)  # as infinities have no difference
        rest = builder.binary("subtract", builder.unary("softplus", held),
                              builder.unary("relu", held))  # fmt: skip
        above = builder.binary("less", threshold, scaled)
        below = builder.binary("subtract", 1.0, above)
        y = builder.add(ramp, builder.multiply(below, rest))
    return y if beta == 1 else builder.divide(y, beta)
