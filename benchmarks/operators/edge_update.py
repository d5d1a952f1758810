"""Concatenation of the features of edges, their sources and their destinations."""

from benchmarks.problem import normal


def inputs(case, rng):
    return {
        "x_src": normal(case, rng, case.nodes, case.width),
        "x_dst": normal(case, rng, case.nodes, case.width),
        "edge": normal(case, rng, case.edges, case.width),
    }


def output_shape(case):
    return case.edges, 3 * case.width


def in_torch(graph, x_src, x_dst, edge):
    import torch

    ends = x_src.index_select(0, graph.src), x_dst.index_select(0, graph.dst)
    return torch.cat([edge, *ends], 1)


def in_jax(graph, x_src, x_dst, edge):
    import jax

    return jax.numpy.concatenate([edge, x_src[graph.src], x_dst[graph.dst]], 1)


def in_pyops(case, graph):
    import pyops

    return pyops.edge_update, (graph.packed,), {}


def multiply_adds(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), 0)


def elements_moved(case):
    """Count edges read and y written; y read and edges written; the first again."""
    return dict.fromkeys(("forward", "backward", "double_backward"), 4 * case.edges * case.width)
