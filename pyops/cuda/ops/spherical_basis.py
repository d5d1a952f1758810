"""The radial part of DimeNet's spherical basis on a device."""

from __future__ import annotations

from typing import Any

from .._bessel import Basis, zeros_and_norms
from .._runtime import Runtime


def _basis(rt: Runtime, a: Any) -> Basis:
    zeros, norms = map(a.table, zeros_and_norms(a.num_spherical, a.num_radial))
    columns = a.num_spherical * a.num_radial
    return Basis(rt, a, columns, each=a.num_radial, zeros=zeros, norms=norms)


def forward(rt: Runtime, a: Any) -> None:
    _basis(rt, a).evaluate()


def backward(rt: Runtime, a: Any) -> None:
    _basis(rt, a).pull(a.gdistances if a.wanted & 1 else None)


def double_backward(rt: Runtime, a: Any) -> None:
    _basis(rt, a).pull(
        a.ddistances if a.wanted & 1 else None,
        None,
        a.dgy if a.wanted & 2 else None,
        True,
        a.hdistances if a.given & 1 else None,
    )
