"""Multi-head dot-product attention over neighbours, as in TransformerConv."""

import numpy as np

from benchmarks.problem import normal


def inputs(case, rng):
    shape = case.nodes, case.heads, case.width
    return {name: normal(case, rng, *shape) for name in ("query", "key", "value")}


def output_shape(case):
    return case.nodes, case.heads * case.width


def pack(query, key, value):
    return query, key, value


def unpack(case, query, key, value):
    return query, key, value


def in_torch(graph, query, key, value):
    """Evaluate like PyTorch Geometric's TransformerConv: gather, scatter softmax, scatter-add."""
    import torch

    nodes, heads, width = query.shape
    score = (query.index_select(0, graph.dst) * key.index_select(0, graph.src)).sum(2)
    score = score / np.sqrt(width)
    index = graph.dst[:, None].expand_as(score)
    top = score.detach().new_full((nodes, heads), -torch.inf)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    power = (score - top.index_select(0, graph.dst)).exp()
    total = torch.zeros_like(top).index_add(0, graph.dst, power)
    alpha = power / total.index_select(0, graph.dst)
    messages = alpha[..., None] * value.index_select(0, graph.src)
    y = torch.zeros_like(query).index_add(0, graph.dst, messages)
    return y.reshape(nodes, heads * width)


def in_jax(graph, query, key, value):
    import jax

    nodes, heads, width = query.shape
    sorted_rows = {"num_segments": nodes, "indices_are_sorted": True}
    score = (query[graph.dst] * key[graph.src]).sum(2) / np.sqrt(width).astype(query.dtype)
    top = jax.ops.segment_max(jax.lax.stop_gradient(score), graph.dst, **sorted_rows)
    power = jax.numpy.exp(score - top[graph.dst])
    alpha = power / jax.ops.segment_sum(power, graph.dst, **sorted_rows)[graph.dst]
    messages = alpha[..., None] * value[graph.src]
    return jax.ops.segment_sum(messages, graph.dst, **sorted_rows).reshape(nodes, heads * width)


def in_dgl(graph, query, key, value):
    import dgl.ops

    score = dgl.ops.u_dot_v(graph.dgl, key, query) / np.sqrt(query.shape[2])
    alpha = dgl.ops.edge_softmax(graph.dgl, score)
    return dgl.ops.u_mul_e_sum(graph.dgl, value, alpha).reshape(len(query), -1)


def in_pyops(case, graph):
    import pyops

    return pyops.transformer_conv, (graph.packed,), {"heads": case.heads}


def multiply_adds(case):
    edge = case.edges * case.heads * case.width
    return {"forward": 2 * edge, "backward": 7 * edge, "double_backward": 20 * edge}


def elements_gathered(case):
    """Count keys and values; these, queries and gradients; all of them and their tangents."""
    edge = case.edges * case.heads * case.width
    return {"forward": 2 * edge, "backward": 4 * edge, "double_backward": 7 * edge}
