"""Functions from coefficients in an orthonormalised basis, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._array import required, store
from .._orthonormal import Orthonormal

if TYPE_CHECKING:
    from .._declared import OnoDecode
    from .._runtime import Runtime


def forward(rt: Runtime, a: OnoDecode) -> None:
    """Compute y."""
    f = Orthonormal(rt, a)
    store(a.y, [f.multiply(a.x, f.q)], a.accumulate)


def backward(rt: Runtime, a: OnoDecode) -> None:
    """Compute gx and gbasis, as requested."""
    f = Orthonormal(rt, a)
    _by_input(f, a)
    if a.gbasis is not None:
        f.store(a.gbasis, f.vjp(f.outer(a.gy, a.x)))


def by_sample(rt: Runtime, a: OnoDecode) -> None:
    """Compute gx and gbasis, without the sum over the samples, as requested."""
    f = Orthonormal(rt, a)
    _by_input(f, a)
    if a.gbasis is not None:
        f.by_sample(a.gy, a.x, a.gbasis)


def _by_input(f: Orthonormal, a: OnoDecode) -> None:
    if a.gx is not None:
        store(a.gx, [f.multiply(required(a.gy), f.q.T)], a.accumulate)


def double_backward(rt: Runtime, a: OnoDecode) -> None:
    """Compute dx, dbasis and dgy, as requested."""
    Orthonormal(rt, a).second(a.gy, a.x, None, a.hx, a.dgy, a.dx)
