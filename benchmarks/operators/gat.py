"""Multi-head attention over neighbours, as in graph attention networks."""

import numpy as np

from benchmarks.problem import normal


def inputs(case, rng):
    nodes, block = (case.nodes, case.heads, case.width), (case.heads, case.width)
    return {
        "x_src": normal(case, rng, *nodes),
        "x_dst": normal(case, rng, *nodes),
        "a_src": normal(case, rng, *block) / np.sqrt(case.width).astype(case.dtype),
        "a_dst": normal(case, rng, *block) / np.sqrt(case.width).astype(case.dtype),
    }


def output_shape(case):
    return case.nodes, case.heads * case.width


def pack(x_src, x_dst, a_src, a_dst):
    from pyops.blocks import pack_gat

    return x_src, x_dst, pack_gat(a_src, a_dst)


def unpack(case, x_src, x_dst, attention):
    from pyops.blocks import unpack_gat

    a_src, a_dst, _ = unpack_gat(attention, heads=case.heads, width=case.width)
    return x_src, x_dst, a_src, a_dst


def in_torch(graph, x_src, x_dst, a_src, a_dst):
    """Evaluate like PyTorch Geometric's GATConv: scores, scatter softmax, gather, scatter-add."""
    import torch

    nodes, heads, width = x_dst.shape
    source, target = (x_src * a_src).sum(2), (x_dst * a_dst).sum(2)
    score = source.index_select(0, graph.src) + target.index_select(0, graph.dst)
    score = torch.nn.functional.leaky_relu(score, 0.2)
    index = graph.dst[:, None].expand_as(score)
    top = score.detach().new_full((nodes, heads), -torch.inf)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    power = (score - top.index_select(0, graph.dst)).exp()
    total = torch.zeros_like(top).index_add(0, graph.dst, power)
    alpha = power / total.index_select(0, graph.dst)
    messages = alpha[..., None] * x_src.index_select(0, graph.src)
    y = torch.zeros_like(x_dst).index_add(0, graph.dst, messages)
    return y.reshape(nodes, heads * width)


def in_jax(graph, x_src, x_dst, a_src, a_dst):
    import jax

    nodes, heads, width = x_dst.shape
    sorted_rows = {"num_segments": nodes, "indices_are_sorted": True}
    score = (x_src * a_src).sum(2)[graph.src] + (x_dst * a_dst).sum(2)[graph.dst]
    score = jax.nn.leaky_relu(score, 0.2)
    top = jax.ops.segment_max(jax.lax.stop_gradient(score), graph.dst, **sorted_rows)
    power = jax.numpy.exp(score - top[graph.dst])
    alpha = power / jax.ops.segment_sum(power, graph.dst, **sorted_rows)[graph.dst]
    messages = alpha[..., None] * x_src[graph.src]
    return jax.ops.segment_sum(messages, graph.dst, **sorted_rows).reshape(nodes, heads * width)


def in_dgl(graph, x_src, x_dst, a_src, a_dst):
    """Evaluate by DGL's generalised sparse products, like its GATConv."""
    import dgl.ops
    import torch

    source, target = (x_src * a_src).sum(2), (x_dst * a_dst).sum(2)
    score = dgl.ops.u_add_v(graph.dgl, source, target)
    alpha = dgl.ops.edge_softmax(graph.dgl, torch.nn.functional.leaky_relu(score, 0.2))
    return dgl.ops.u_mul_e_sum(graph.dgl, x_src, alpha[..., None]).reshape(len(x_dst), -1)


def in_pyops(case, graph):
    import pyops

    return pyops.gat, (graph.packed,), {"heads": case.heads}


def multiply_adds(case):
    """Count products of rows per edge, and of the scores per node."""
    edge = case.edges * case.heads * case.width
    node = case.nodes * case.heads * case.width
    return {
        "forward": edge + 2 * node,
        "backward": 2 * edge + 4 * node,
        "double_backward": 5 * edge + 12 * node,
    }


def elements_gathered(case):
    """Count source rows; gradients by the sources; both of them and the tangents."""
    edge = case.edges * case.heads * case.width
    return {"forward": edge, "backward": edge, "double_backward": 3 * edge}
