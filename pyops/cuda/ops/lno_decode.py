"""Sums of decaying exponentials on a device, by products with the matrix of exponentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._laplace import Laplace

if TYPE_CHECKING:
    from .._declared import LnoDecode
    from .._runtime import Runtime


def forward(rt: Runtime, a: LnoDecode) -> None:
    """Compute y."""
    f = Laplace(rt, a)
    f.store(a.y, f.by_points(a.x))


def backward(rt: Runtime, a: LnoDecode) -> None:
    """Compute gx and gpoles, as requested."""
    f = Laplace(rt, a)
    if a.gx is not None:
        f.store(a.gx, f.by_modes(a.gy))
    f.gradient(a.x, a.gy)


def double_backward(rt: Runtime, a: LnoDecode) -> None:
    """Compute dx, dpoles and dgy, as requested."""
    Laplace(rt, a).second(a.x, a.gy, a.hx, None, a.dx, a.dgy)
