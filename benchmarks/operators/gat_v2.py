"""Attention with scores by a network of both end nodes, as in GATv2."""

import numpy as np

from benchmarks.problem import normal


def inputs(case, rng):
    nodes = case.nodes, case.heads, case.width
    return {
        "x_src": normal(case, rng, *nodes),
        "x_dst": normal(case, rng, *nodes),
        "attention": normal(case, rng, *nodes[1:]) / np.sqrt(case.width).astype(case.dtype),
    }


def output_shape(case):
    return case.nodes, case.heads * case.width


def pack(x_src, x_dst, attention):
    return x_src, x_dst, attention.reshape(-1)


def unpack(case, x_src, x_dst, attention):
    return x_src, x_dst, attention.reshape(case.heads, case.width)


def in_torch(graph, x_src, x_dst, attention):
    """Evaluate like PyTorch Geometric's GATv2Conv."""
    import torch

    nodes, heads, width = x_dst.shape
    messages = x_src.index_select(0, graph.src)
    hidden = torch.nn.functional.leaky_relu(messages + x_dst.index_select(0, graph.dst), 0.2)
    score = (hidden * attention).sum(2)
    index = graph.dst[:, None].expand_as(score)
    top = score.detach().new_full((nodes, heads), -torch.inf)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    power = (score - top.index_select(0, graph.dst)).exp()
    total = torch.zeros_like(top).index_add(0, graph.dst, power)
    alpha = power / total.index_select(0, graph.dst)
    y = torch.zeros_like(x_dst).index_add(0, graph.dst, alpha[..., None] * messages)
    return y.reshape(nodes, heads * width)


def in_pyops(case, graph):
    import pyops

    return pyops.gat_v2, (graph.packed,), {"heads": case.heads}


def multiply_adds(case):
    edge = case.edges * case.heads * case.width
    return {"forward": 2 * edge, "backward": 7 * edge, "double_backward": 16 * edge}


def elements_gathered(case):
    """Count source rows twice; gradients by sources and both ends; the same with tangents."""
    edge = case.edges * case.heads * case.width
    return {"forward": edge, "backward": 2 * edge, "double_backward": 4 * edge}
