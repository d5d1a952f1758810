"""The radial part of DimeNet's spherical basis on a device."""

from __future__ import annotations

import weakref
from typing import Any

from .._bessel import Basis, zeros_and_norms
from .._runtime import Runtime

_tables: weakref.WeakKeyDictionary[Runtime, dict[Any, Any]] = weakref.WeakKeyDictionary()
"""Zeros and norms that are on a device already, by device and size."""


def _basis(rt: Runtime, a: Any) -> Basis:
    sizes = a.num_spherical, a.num_radial
    held = _tables.setdefault(rt, {})
    key = *sizes, getattr(a.distances, "device", None)
    if key not in held:
        held[key] = [rt.xp.asarray(table) for table in zeros_and_norms(*sizes)]
    zeros, norms = held[key]
    return Basis(rt, a, a.num_spherical * a.num_radial, each=a.num_radial, zeros=zeros, norms=norms)


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
