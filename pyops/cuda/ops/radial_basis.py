"""The radial basis of DimeNet on a device."""

from __future__ import annotations

from typing import Any

from .._bessel import Basis
from .._runtime import Runtime


def _basis(rt: Runtime, a: Any) -> Basis:
    return Basis(rt, a, a.num_radial, frequencies=a.frequencies)


def forward(rt: Runtime, a: Any) -> None:
    _basis(rt, a).evaluate()


def backward(rt: Runtime, a: Any) -> None:
    by_x = a.gdistances if a.wanted & 1 else None
    _basis(rt, a).pull(by_x, a.gfrequencies if a.wanted & 2 else None)


def double_backward(rt: Runtime, a: Any) -> None:
    _basis(rt, a).pull(
        a.ddistances if a.wanted & 1 else None,
        a.dfrequencies if a.wanted & 2 else None,
        a.dgy if a.wanted & 4 else None,
        True,
        a.hdistances if a.given & 1 else None,
        a.hfrequencies if a.given & 2 else None,
    )
