"""Sum of neighbour features, normalised by the degrees of both ends."""

from benchmarks.problem import normal


def inputs(case, rng):
    return {"x": normal(case, rng, case.nodes, case.width)}


def output_shape(case):
    return case.nodes, case.width


def in_torch(graph, x):
    import torch

    into, out = (torch.bincount(ends, minlength=len(x)) for ends in (graph.dst, graph.src))
    factors = (into[graph.dst] * out[graph.src]).to(x.dtype).rsqrt()
    messages = factors[:, None] * x.index_select(0, graph.src)
    return torch.zeros_like(x).index_add_(0, graph.dst, messages)


def in_jax(graph, x):
    import jax

    into, out = (jax.numpy.bincount(ends, length=len(x)) for ends in (graph.dst, graph.src))
    factors = jax.lax.rsqrt((into[graph.dst] * out[graph.src]).astype(x.dtype))
    messages = factors[:, None] * x[graph.src]
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
