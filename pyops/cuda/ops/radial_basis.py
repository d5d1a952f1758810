"""The radial basis of DimeNet on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._bessel import Basis

if TYPE_CHECKING:
    from .._declared import RadialBasis
    from .._runtime import Runtime


def _basis(rt: Runtime, a: RadialBasis) -> Basis:
    return Basis(rt, a, a.num_radial, frequencies=a.frequencies)


def forward(rt: Runtime, a: RadialBasis) -> None:
    """Compute y."""
    _basis(rt, a).evaluate()


def backward(rt: Runtime, a: RadialBasis) -> None:
    """Compute gdistances and gfrequencies, as requested."""
    _basis(rt, a).vjp(a.gdistances, a.gfrequencies)


def double_backward(rt: Runtime, a: RadialBasis) -> None:
    """Compute ddistances, dfrequencies and dgy, as requested."""
    tangents = a.hdistances, a.hfrequencies
    _basis(rt, a).vjp(a.ddistances, a.dfrequencies, a.dgy, True, *tangents)
