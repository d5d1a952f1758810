"""Laplace transform on a device, by products with the matrix of exponentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._laplace import Laplace

if TYPE_CHECKING:
    from .._declared import LnoEncode
    from .._runtime import Runtime


def forward(rt: Runtime, a: LnoEncode) -> None:
    """Compute y."""
    f = Laplace(rt, a)
    f.store(a.y, f.by_modes(a.u))


def backward(rt: Runtime, a: LnoEncode) -> None:
    """Compute gu and gpoles, as requested."""
    f = Laplace(rt, a)
    if a.gu is not None:
        f.store(a.gu, f.by_points(a.gy))
    f.gradient(a.gy, a.u)


def double_backward(rt: Runtime, a: LnoEncode) -> None:
    """Compute du, dpoles and dgy, as requested."""
    Laplace(rt, a).second(a.gy, a.u, None, a.hu, a.dgy, a.du)
