"""neuraloperator's IntegralTransform, including the kernel network.

All sides compute from the points p [N, d], the features f and the network's parameters:
m_i = sum over edges of k_e * f_j with k_e = V relu(U [p_j, p_i] + b_u) + b_v, starting from the
concatenated points of both ends, and the gradients of f, U, b_u, V, b_v; the points are data.
pyops: the first layer in NumPy, then kernel_conv. neuraloperator: its class with LinearChannelMLP,
and the reduction that it uses without torch_scatter, which has no wheel.
"""

from functools import cache

import numpy as np

from benchmarks.operators import kernel_conv
from benchmarks.operators.gno_aggregate import output_shape
from benchmarks.problem import grid, kernel_inputs, normal

__all__ = ["output_shape"]


def inputs(case, rng):
    features = normal(case, rng, case.nodes, case.width)
    return {"features": features, **kernel_inputs(case, rng, 2 * case.dims)}


def constants(case, rng, **graph):
    return {"points": grid(case, rng, case.nodes, case.dims)}


def in_torch(graph, features, hidden_weight, hidden_bias, weight, bias):
    import torch
    from torch.nn.functional import linear, relu

    pairs = torch.cat([graph.points[graph.src], graph.points[graph.dst]], dim=1)
    return kernel_conv.in_torch(
        graph, features, relu(linear(pairs, hidden_weight, hidden_bias)), weight, bias
    )


def in_jax(graph, features, hidden_weight, hidden_bias, weight, bias):
    import jax

    pairs = jax.numpy.concatenate([graph.points[graph.src], graph.points[graph.dst]], axis=1)
    return kernel_conv.in_jax(
        graph, features, jax.nn.relu(pairs @ hidden_weight.T + hidden_bias), weight, bias
    )


def in_neuraloperator(graph, features, *layers):
    from torch.func import functional_call

    transform = integral_transform((layers[0].shape[1], len(layers[1]), len(layers[3])))
    names = [name for name, _ in transform.named_parameters()]
    parameters = dict(zip(names, layers, strict=True))
    neighbors = {"neighbors_index": graph.src, "neighbors_row_splits": graph.offsets}
    return functional_call(transform, parameters, (graph.points, neighbors), {"f_y": features})


@cache
def integral_transform(layers):
    from neuralop.layers.integral_transform import IntegralTransform
    from torch.nn.functional import relu

    return IntegralTransform(
        channel_mlp_layers=layers, channel_mlp_non_linearity=relu, use_torch_scatter=False
    )


def in_pyops(case, graph):
    return Transform(graph), (), {}


class Transform:
    """First layer in NumPy and the rest in kernel_conv, with the interface of an operator."""

    def __init__(self, graph):
        from pyops import kernel_conv

        self.graph, self.conv = graph, kernel_conv

    def forward(self, features, hidden_weight, hidden_bias, weight, bias):
        points, graph = self.graph.points, self.graph
        pairs = np.concatenate([points[graph.src], points[graph.dst]], axis=1)
        hidden = pairs @ hidden_weight.T
        hidden += hidden_bias
        np.maximum(hidden, 0, out=hidden)
        y, saved = self.conv.forward(
            graph.packed, features, hidden, weight, bias, kernel="diagonal"
        )
        return y, (pairs, hidden, saved)

    def backward(self, features, hidden_weight, hidden_bias, weight, bias, gy, saved):
        pairs, hidden, saved = saved
        inputs = features, hidden, weight, bias
        gfeatures, ghidden, gweight, gbias, _ = self.conv.backward(
            self.graph.packed, *inputs, gy, saved=saved, kernel="diagonal"
        )
        ghidden *= hidden > 0
        return gfeatures, ghidden.T @ pairs, ghidden.sum(0), gweight, gbias

    def double_backward(
        self, features, hidden_weight, hidden_bias, weight, bias, gy, *cotangents, saved
    ):
        pairs, hidden, saved = saved
        hfeatures, hhidden_weight, hhidden_bias, hweight, hbias = cotangents
        hhidden = pairs @ hhidden_weight.T
        hhidden += hhidden_bias
        hhidden *= hidden > 0
        inputs = features, hidden, weight, bias
        dfeatures, dhidden, dweight, dbias, _, dgy = self.conv.double_backward(
            self.graph.packed, *inputs, gy, hfeatures, hhidden, hweight, hbias,
            saved=saved, kernel="diagonal",
        )  # fmt: skip
        dhidden *= hidden > 0
        return dfeatures, dhidden.T @ pairs, dhidden.sum(0), dweight, dbias, dgy


def multiply_adds(case):
    """Count kernel_conv's, plus the first layer's over 2 d coordinates: 1, 1 and 2 products."""
    layer = case.edges * case.hidden * 2 * case.dims
    rest = kernel_conv.multiply_adds(case)
    layers = {"forward": 1, "backward": 1, "double_backward": 2}
    return {phase: rest[phase] + layers[phase] * layer for phase in layers}
