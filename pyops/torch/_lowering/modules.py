"""Modules of torch as steps."""

from __future__ import annotations

import torch

from ..nn._linear import Linear
from . import functions
from .builder import Builder, Ref, UnsupportedError, lowering

_NAMES: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.SiLU: "silu",
    torch.nn.Sigmoid: "sigmoid",
    torch.nn.Tanh: "tanh",
    torch.nn.Hardsigmoid: "hardsigmoid",
}


@lowering(*_NAMES)
def _activation(builder: Builder, module: torch.nn.Module, x: Ref) -> Ref:
    return builder.unary(_NAMES[type(module)], x)


@lowering(torch.nn.LeakyReLU)
def _leaky_relu(builder: Builder, module: torch.nn.LeakyReLU, x: Ref) -> Ref:
    return builder.unary("leaky_relu", x, negative_slope=float(module.negative_slope))


@lowering(torch.nn.ELU)
def _elu(builder: Builder, module: torch.nn.ELU, x: Ref) -> Ref:
    return builder.unary("elu", x, alpha=float(module.alpha))


@lowering(torch.nn.GELU)
def _gelu(builder: Builder, module: torch.nn.GELU, x: Ref) -> object:
    return functions.lowered(builder, "gelu", x, approximate=module.approximate)


@lowering(torch.nn.Softplus)
def _softplus(builder: Builder, module: torch.nn.Softplus, x: Ref) -> object:
    return functions.lowered(builder, "softplus", x, float(module.beta), float(module.threshold))


@lowering(torch.nn.Softmax, torch.nn.LogSoftmax)
def _softmax(builder: Builder, module: torch.nn.Softmax | torch.nn.LogSoftmax, x: Ref) -> object:
    name = "softmax" if isinstance(module, torch.nn.Softmax) else "log_softmax"
    return functions.lowered(builder, name, x, module.dim)


@lowering(torch.nn.Identity)
def _identity(builder: Builder, module: torch.nn.Module, x: Ref) -> Ref:
    return x


@lowering(torch.nn.Flatten)
def _flatten(builder: Builder, module: torch.nn.Flatten, x: Ref) -> object:
    return functions.lowered(builder, "flatten", x, module.start_dim)


@lowering(torch.nn.Dropout, torch.nn.AlphaDropout)
def _dropout(builder: Builder, module: torch.nn.Dropout, x: Ref) -> object:
    return functions.lowered(builder, "dropout", x, module.p, module.training)


@lowering(torch.nn.Linear, Linear)
def _linear(builder: Builder, module: torch.nn.Linear, x: Ref) -> object:
    weight, bias = builder.parameter(module.weight), builder.tensor(module.bias)
    return functions.lowered(builder, "linear", x, weight, bias)


@lowering(torch.nn.LayerNorm)
def _layer_norm(builder: Builder, module: torch.nn.LayerNorm, x: Ref) -> object:
    scale = builder.tensor(module.weight), builder.tensor(module.bias)
    return functions.lowered(
        builder, "layer_norm", x, module.normalized_shape, *scale, float(module.eps)
    )


@lowering(torch.nn.BatchNorm1d)
def _batch_norm(builder: Builder, module: torch.nn.BatchNorm1d, x: Ref) -> Ref:
    """Write the scale and shift by running statistics, as in evaluation."""
    if module.running_mean is None or module.running_var is None:
        raise UnsupportedError("track_running_stats: expected True, got False")
    if module.training:
        raise UnsupportedError("expected training=False, as in model.eval()")
    if x.axes != 2:
        raise UnsupportedError(f"expected a matrix, got {x.axes} dimensions")
    mean, variance = map(builder.parameter, (module.running_mean, module.running_var))
    deviation = builder.unary("sqrt", builder.add(variance, float(module.eps)))
    y = builder.divide(builder.binary("subtract", x, mean), deviation)
    if module.weight is not None:
        y = builder.multiply(y, builder.parameter(module.weight))
    return builder.add(y, builder.tensor(module.bias))


@lowering(torch.nn.Embedding)
def _embedding(builder: Builder, module: torch.nn.Embedding, index: Ref) -> object:
    weight = builder.parameter(module.weight)
    options = module.padding_idx, module.max_norm, module.norm_type, module.scale_grad_by_freq
    return functions.lowered(builder, "embedding", index, weight, *options)
