from __future__ import annotations

from typing import TYPE_CHECKING

from .._convolution import Convolution
from .._runtime import Runtime

if TYPE_CHECKING:
    from .._declared import GnoConv


def forward(rt: Runtime, a: GnoConv) -> None:
    Convolution(rt, a).forward(a.y)


def backward(rt: Runtime, a: GnoConv) -> None:
    conv = Convolution(rt, a)
    if a.gfeatures is not None:
        conv.by_features(False, a.gfeatures)
    if a.gparams is not None:
        conv.weight_gradient(False, a.gparams)
    if a.gcoords is not None or a.gparams is not None:
        conv.layer_gradient(False, a.gcoords, a.gparams)


def double_backward(rt: Runtime, a: GnoConv) -> None:
    conv = Convolution(rt, a)
    if a.dgy is not None:
        conv.derivative(a.dgy)
    if a.dfeatures is not None:
        conv.by_features(True, a.dfeatures)
    if a.dparams is not None:
        conv.weight_gradient(True, a.dparams)
    if a.dcoords is not None or a.dparams is not None:
        conv.layer_gradient(True, a.dcoords, a.dparams)
