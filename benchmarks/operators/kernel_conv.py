"""gno_conv with a given last hidden layer, for matrix or diagonal kernels."""

import numpy as np

from benchmarks.operators import gno_aggregate
from benchmarks.operators.gno_aggregate import output_shape
from benchmarks.problem import normal

__all__ = ["output_shape"]


def inputs(case, rng):
    outputs = case.width * case.out_features
    return {
        "features": normal(case, rng, case.nodes, case.width),
        "hidden_layer": np.maximum(normal(case, rng, case.edges, case.hidden), 0),
        "weight": normal(case, rng, outputs, case.hidden) / np.sqrt(case.hidden).astype(case.dtype),
        "bias": normal(case, rng, outputs),
    }


def in_torch(graph, features, hidden_layer, weight, bias):
    import torch

    kappa = torch.nn.functional.linear(hidden_layer, weight, bias)
    if kappa.shape[1] != features.shape[1]:
        return gno_aggregate.in_torch(graph, features, kappa)
    messages = features.index_select(0, graph.src) * kappa
    return torch.zeros_like(features).index_add_(0, graph.dst, messages)


def in_jax(graph, features, hidden_layer, weight, bias):
    import jax

    kappa = hidden_layer @ weight.T + bias
    if kappa.shape[1] != features.shape[1]:
        return gno_aggregate.in_jax(graph, features, kappa, computed=True)
    messages = features[graph.src] * kappa
    return jax.ops.segment_sum(messages, graph.dst, len(features), indices_are_sorted=True)


def in_pyops(case, graph):
    import pyops

    return pyops.kernel_conv, (graph.packed,), {"kernel": case.kernel}


def multiply_adds(case):
    """Count as for gno_conv, less the hidden layer; a diagonal kernel has one output per input."""
    entry, node = case.edges * case.width, case.nodes * case.width * case.out_features
    hidden, bias = case.hidden, 1
    return {
        "forward": entry * (hidden + bias) + node * (hidden + bias),
        "backward": entry * (3 * hidden + 2 * bias) + 2 * node * (hidden + bias),
        "double_backward": entry * (8 * hidden + 3 * bias) + node * (5 * hidden + 4 * bias),
    }
