from __future__ import annotations

from typing import TYPE_CHECKING

from .._laplace import Laplace
from .._runtime import Runtime

if TYPE_CHECKING:
    from .._declared import LnoDecode


def forward(rt: Runtime, a: LnoDecode) -> None:
    f = Laplace(rt, a)
    f.store(a.y, f.by_points(a.x))


def backward(rt: Runtime, a: LnoDecode) -> None:
    f = Laplace(rt, a)
    if a.gx is not None:
        f.store(a.gx, f.by_modes(a.gy))
    f.gradient(a.x, a.gy)


def double_backward(rt: Runtime, a: LnoDecode) -> None:
    Laplace(rt, a).second(a.x, a.gy, a.hx, None, a.dx, a.dgy)
