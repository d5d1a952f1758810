"""Phases of operators y = B(x, weight) that are linear in each input, from three products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from ._arguments import Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._array import DeviceArray
    from ._declared import DegreeNormalised, HeteroBasis
    from ._runtime import Runtime

    Call = TypeVar("Call", DegreeNormalised, HeteroBasis)


class Products(Protocol):
    """B and its adjoints in each input, for the gradient gy of a call; outputs (+)= products."""

    def add(
        self, x: DeviceArray, weight: DeviceArray | None, y: DeviceArray, accumulate: bool, /
    ) -> None:
        """`y` (+)= B(x, weight)."""

    def by_x(self, weight: DeviceArray | None, gx: DeviceArray, accumulate: bool, /) -> None:
        """`gx` (+)= the gradient by x, which depends on the weights and gy."""

    def by_weight(self, x: DeviceArray, gweight: DeviceArray, accumulate: bool, /) -> None:
        """`gweight` (+)= the gradient by the weights, which depends on x and gy."""


def phases(
    products: Callable[[Runtime, Call], Products],
) -> tuple[Callable[[Runtime, Call], None], ...]:
    """Return forward, backward and double backward."""

    def forward(rt: Runtime, a: Call) -> None:
        products(rt, a).add(a.x, a.weight, a.y, a.accumulate)

    def backward(rt: Runtime, a: Call) -> None:
        of = products(rt, a)
        if a.gx is not None:
            of.by_x(a.weight, a.gx, a.accumulate)
        if a.gweight is not None:
            of.by_weight(a.x, a.gweight, a.accumulate)

    def double_backward(rt: Runtime, a: Call) -> None:
        of, written = products(rt, a), Written(a)
        if a.hweight is not None and a.dx is not None:
            of.by_x(a.hweight, a.dx, written("dx"))
        if a.hx is not None and a.dweight is not None:
            of.by_weight(a.hx, a.dweight, written("dweight"))
        if a.hx is not None and a.dgy is not None:
            of.add(a.hx, a.weight, a.dgy, written("dgy"))
        if a.hweight is not None and a.dgy is not None:
            of.add(a.x, a.hweight, a.dgy, written("dgy"))
        written.finish("dx", "dweight", "dgy")

    return forward, backward, double_backward
