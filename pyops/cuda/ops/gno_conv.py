from types import SimpleNamespace

from .._convolution import Convolution
from .._runtime import Runtime


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    conv = Convolution(rt, a)
    conv.gather("in", a.features, None, [(False, conv.matrix)], a.y)


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    conv = Convolution(rt, a)
    if a.gfeatures is not None:
        conv.gather("out", a.gy, None, [(False, conv.turn(conv.matrix))], a.gfeatures)
    if a.gparams is not None:
        conv.weight_gradient(False, a.gparams)
    if a.gcoords is not None or a.gparams is not None:
        conv.layer_gradient(False, a.gcoords, a.gparams)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    conv = Convolution(rt, a)
    by_weight = [(False, conv.matrix_tangent)] if a.hparams is not None else []
    if a.dgy is not None:
        along = conv.moves or a.hfeatures is not None
        products = [(True, conv.matrix)] if along else []
        conv.gather("in", a.features, a.hfeatures, [*products, *by_weight], a.dgy)
    if a.dfeatures is not None:
        products = [(True, conv.turn(conv.matrix))] if conv.moves else []
        if a.hparams is not None:
            products.append((False, conv.turn(conv.matrix_tangent)))
        conv.gather("out", a.gy, None, products, a.dfeatures)
    if a.dparams is not None:
        conv.weight_gradient(True, a.dparams)
    if a.dcoords is not None or a.dparams is not None:
        conv.layer_gradient(True, a.dcoords, a.dparams)
