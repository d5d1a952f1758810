"""Sum or mean of neighbour features."""

from benchmarks.problem import normal


def inputs(case, rng):
    return {"x": normal(case, rng, case.nodes, case.width)}


def output_shape(case):
    return case.nodes, case.width


def constants(case, rng, **graph):
    return {"mean": case.reduce == "mean"}


def in_torch(graph, x):
    import torch

    y = torch.zeros_like(x).index_add_(0, graph.dst, x.index_select(0, graph.src))
    return y / graph.offsets.diff().clamp(min=1)[:, None] if graph.mean else y


def in_jax(graph, x):
    import jax

    nodes = len(x)
    y = jax.ops.segment_sum(x[graph.src], graph.dst, nodes, indices_are_sorted=True)
    degrees = jax.numpy.maximum(jax.numpy.diff(graph.offsets), 1)
    return y / degrees[:, None] if graph.mean else y


def in_dgl(graph, x):
    import dgl.ops

    return (dgl.ops.copy_u_mean if graph.mean else dgl.ops.copy_u_sum)(graph.dgl, x)


def in_pyops(case, graph):
    import pyops

    return pyops.aggregate, (graph.packed,), {"reduce": case.reduce}


def multiply_adds(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), case.edges * case.width)


def elements_gathered(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), case.edges * case.width)
