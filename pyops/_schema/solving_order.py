"""Order in which the sizes of a call follow from its options and the shapes of its inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .declaration import Shape, Size


class Step(NamedTuple):
    """Equation that determines a size, or that known sizes have to satisfy."""

    size: Size
    """Expression that equals the size `name` or, if there is an axis, its length."""
    name: str = ""
    """Size to solve for; empty if the expression has no unknown one."""
    axis: tuple[int, int] | None = None
    """Index of a shape and of an axis in it."""


@functools.cache
def solving_order(
    shapes: tuple[Shape, ...], follows: tuple[tuple[str, Size], ...], known: frozenset[str]
) -> tuple[Step, ...]:
    """Return the steps that find all sizes in the shapes, and those of `Signature.follows`.

    Each step is the first equation with at most one unknown, those of `follows` before those of
    axes: error messages show the sizes found until then.
    """
    equations = [Step(size, name) for name, size in follows]
    for place, shape in enumerate(shapes):
        equations += [Step(size, axis=(place, number)) for number, size in enumerate(shape)]
    found = set(known)
    order = []
    while equations:
        for step in equations:
            unknown = step.size.names - found
            if len(unknown) <= (step.axis is not None):
                break
        else:
            names = {name for step in equations for name in step.size.names} - found
            raise ValueError(f"sizes that do not follow: {', '.join(sorted(names))}")
        equations.remove(step)
        order.append(step._replace(name=min(unknown, default=step.name)))
        found.add(order[-1].name)
    return tuple(order)
