"""Maximum of neighbour features, column by column."""

from benchmarks.operators.aggregate import (
    elements_gathered,
    inputs,
    multiply_adds,
    output_shape,
)

__all__ = ["elements_gathered", "inputs", "multiply_adds", "output_shape"]


def in_torch(graph, x):
    import torch

    messages = x.index_select(0, graph.src)
    into = graph.dst[:, None].expand_as(messages)
    return torch.zeros_like(x).scatter_reduce(0, into, messages, "amax", include_self=False)


def in_jax(graph, x):
    import jax

    y = jax.ops.segment_max(x[graph.src], graph.dst, len(x), indices_are_sorted=True)
    return jax.numpy.where(jax.numpy.diff(graph.offsets)[:, None] > 0, y, 0)


def in_dgl(graph, x):
    import dgl.ops

    return dgl.ops.copy_u_max(graph.dgl, x)


def in_pyops(case, graph):
    import pyops

    return pyops.aggregate, (graph.packed,), {"reduce": "max"}
