"""Orthonormalised basis on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._array import required
from .._orthonormal import Orthonormal

if TYPE_CHECKING:
    from .._declared import Orthonormalize
    from .._runtime import Runtime


def forward(rt: Runtime, a: Orthonormalize) -> None:
    """Compute y."""
    f = Orthonormal(rt, a)
    f.store(a.y, f.q)


def backward(rt: Runtime, a: Orthonormalize) -> None:
    """Compute gbasis if requested."""
    f = Orthonormal(rt, a)
    if a.gbasis is not None:
        f.store(a.gbasis, f.vjp(f.masked(required(a.gy).T)))


def double_backward(rt: Runtime, a: Orthonormalize) -> None:
    """Compute dbasis and dgy, as requested."""
    f = Orthonormal(rt, a)
    zeros = rt.zeros((a.modes, a.points), a.basis.dtype)
    tangent = None if a.hbasis is None else f.tangent(a.hbasis)
    if a.dgy is not None:
        f.store(a.dgy, zeros if tangent is None else tangent[2])
    if a.dbasis is not None:
        gradient = zeros
        if tangent is not None:
            gradient = f.vjp_second(f.masked(required(a.gy).T), zeros, *tangent[:2])
        f.store(a.dbasis, gradient)
