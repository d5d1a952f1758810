"""Coefficients in an orthonormalised basis, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._array import required, store
from .._orthonormal import Orthonormal

if TYPE_CHECKING:
    from .._declared import OnoEncode
    from .._runtime import Runtime


def forward(rt: Runtime, a: OnoEncode) -> None:
    """Compute y."""
    f = Orthonormal(rt, a)
    store(a.y, [f.multiply(a.u, f.q.T)], a.accumulate)


def backward(rt: Runtime, a: OnoEncode) -> None:
    """Compute gu and gbasis, as requested."""
    f = Orthonormal(rt, a)
    _by_input(f, a)
    if a.gbasis is not None:
        f.store(a.gbasis, f.vjp(f.outer(a.u, a.gy)))


def by_sample(rt: Runtime, a: OnoEncode) -> None:
    """Compute gu and gbasis, without the sum over the samples, as requested."""
    f = Orthonormal(rt, a)
    _by_input(f, a)
    if a.gbasis is not None:
        f.by_sample(a.u, a.gy, a.gbasis)


def _by_input(f: Orthonormal, a: OnoEncode) -> None:
    if a.gu is not None:
        store(a.gu, [f.multiply(required(a.gy), f.q)], a.accumulate)


def double_backward(rt: Runtime, a: OnoEncode) -> None:
    """Compute du, dbasis and dgy, as requested."""
    Orthonormal(rt, a).second(a.u, a.gy, a.hu, None, a.du, a.dgy)
