"""Convolution with the kernel network of the graph neural operator, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._convolution import Convolution

if TYPE_CHECKING:
    from .._declared import GnoConv
    from .._runtime import Runtime


def forward(rt: Runtime, a: GnoConv) -> None:
    """Compute y."""
    Convolution(rt, a).forward(a.y)


def backward(rt: Runtime, a: GnoConv) -> None:
    """Compute gfeatures, gcoords and gparams, as requested."""
    conv = Convolution(rt, a)
    if a.gfeatures is not None:
        conv.by_features(False, a.gfeatures)
    if a.gparams is not None:
        conv.weight_gradient(False, a.gparams)
    if a.gcoords is not None or a.gparams is not None:
        conv.layer_gradient(False, a.gcoords, a.gparams)


def double_backward(rt: Runtime, a: GnoConv) -> None:
    """Compute dfeatures, dcoords, dparams and dgy, as requested."""
    conv = Convolution(rt, a)
    if a.dgy is not None:
        conv.derivative(a.dgy)
    if a.dfeatures is not None:
        conv.by_features(True, a.dfeatures)
    if a.dparams is not None:
        conv.weight_gradient(True, a.dparams)
    if a.dcoords is not None or a.dparams is not None:
        conv.layer_gradient(True, a.dcoords, a.dparams)
