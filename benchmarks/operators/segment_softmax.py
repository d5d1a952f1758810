"""Softmax over the incoming edges of each node."""

from benchmarks.problem import normal


def inputs(case, rng):
    return {"logits": normal(case, rng, case.edges, case.heads)}


def output_shape(case):
    return case.edges, case.heads


def in_torch(graph, logits):
    import torch

    index = graph.dst[:, None].expand_as(logits)
    nodes = len(graph.offsets) - 1
    top = logits.detach().new_full((nodes, logits.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, logits.detach(), "amax")
    power = (logits - top.index_select(0, graph.dst)).exp()
    total = torch.zeros_like(top).index_add(0, graph.dst, power)
    return power / total.index_select(0, graph.dst)


def in_jax(graph, logits):
    import jax

    rows = {"num_segments": len(graph.offsets) - 1, "indices_are_sorted": True}
    top = jax.ops.segment_max(jax.lax.stop_gradient(logits), graph.dst, **rows)
    power = jax.numpy.exp(logits - top[graph.dst])
    return power / jax.ops.segment_sum(power, graph.dst, **rows)[graph.dst]


def in_dgl(graph, logits):
    import dgl.ops

    return dgl.ops.edge_softmax(graph.dgl, logits)


def in_pyops(case, graph):
    import pyops

    return pyops.segment_softmax, (graph.packed,), {}


def multiply_adds(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), case.edges * case.heads)


def elements_moved(case):
    """Count logits read and alpha written; also gy; also the cotangent, and two more written."""
    one = case.edges * case.heads
    return {"forward": 2 * one, "backward": 3 * one, "double_backward": 5 * one}
