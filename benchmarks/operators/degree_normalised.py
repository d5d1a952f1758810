"""Sum of neighbour features, normalised by the degrees of both ends."""

import numpy as np

from benchmarks.problem import normal


def inputs(case, rng):
    return {"x": normal(case, rng, case.nodes, case.width)}


def output_shape(case):
    return case.nodes, case.width


def constants(case, rng, src, dst, **graph):
    """Return the factor of each edge, which peers keep; pyops has the degrees alone."""
    into, out = (np.bincount(ends, minlength=case.nodes) for ends in (dst, src))
    return {"factors": ((into[dst] * out[src]) ** -0.5).astype(case.dtype)}


def in_torch(graph, x):
    import torch

    messages = graph.factors[:, None] * x.index_select(0, graph.src)
    return torch.zeros_like(x).index_add_(0, graph.dst, messages)


def in_jax(graph, x):
    import jax

    messages = graph.factors[:, None] * x[graph.src]
    return jax.ops.segment_sum(messages, graph.dst, len(x), indices_are_sorted=True)


def in_dgl(graph, x):
    import dgl.ops

    into, out = (d.clamp(min=1).to(x.dtype).rsqrt()[:, None] for d in (
        graph.dgl.in_degrees(), graph.dgl.out_degrees()
    ))  # fmt: skip
    return into * dgl.ops.copy_u_sum(graph.dgl, out * x)


def in_pyops(case, graph):
    import pyops

    return pyops.degree_normalised, (graph.packed,), {}


def multiply_adds(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), case.edges * case.width)


def elements_gathered(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), case.edges * case.width)
