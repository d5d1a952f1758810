"""The radial part of DimeNet's spherical basis on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._bessel import Basis, zeros_and_norms

if TYPE_CHECKING:
    from .._declared import SphericalBasis
    from .._runtime import Runtime


def _basis(rt: Runtime, a: SphericalBasis) -> Basis:
    zeros, norms = map(a.table, zeros_and_norms(a.num_spherical, a.num_radial))
    columns = a.num_spherical * a.num_radial
    return Basis(rt, a, columns, each=a.num_radial, zeros=zeros, norms=norms)


def forward(rt: Runtime, a: SphericalBasis) -> None:
    """Compute y."""
    _basis(rt, a).evaluate()


def backward(rt: Runtime, a: SphericalBasis) -> None:
    """Compute gdistances if requested."""
    _basis(rt, a).vjp(a.gdistances)


def double_backward(rt: Runtime, a: SphericalBasis) -> None:
    """Compute ddistances and dgy, as requested."""
    _basis(rt, a).vjp(a.ddistances, None, a.dgy, True, a.hdistances)
