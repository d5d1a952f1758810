"""Sums of neighbours for each basis, weighted by relation; `hidden` is the number of bases."""

from benchmarks.problem import normal

TYPES = 16


def inputs(case, rng):
    return {
        "x": normal(case, rng, case.nodes, case.width),
        "weight": normal(case, rng, TYPES, case.hidden),
    }


def output_shape(case):
    return case.nodes, case.hidden * case.width


def constants(case, rng, **graph):
    return {"types": rng.integers(TYPES, size=case.edges)}


def in_torch(graph, x, weight):
    import torch

    weights = weight.index_select(0, graph.types)
    messages = weights[:, :, None] * x.index_select(0, graph.src)[:, None, :]
    y = messages.new_zeros(len(x), weight.shape[1] * x.shape[1])
    return torch.index_add(y, 0, graph.dst, messages.flatten(1))


def in_jax(graph, x, weight):
    import jax

    messages = weight[graph.types][:, :, None] * x[graph.src][:, None, :]
    flat = messages.reshape(len(messages), weight.shape[1] * x.shape[1])
    return jax.ops.segment_sum(flat, graph.dst, len(x), indices_are_sorted=True)


def in_pyops(case, graph):
    import pyops

    return pyops.hetero_basis, (graph.packed.with_edge_ids(graph.types, TYPES),), {}


def multiply_adds(case):
    one = case.edges * case.hidden * case.width
    return {"forward": one, "backward": 2 * one, "double_backward": 4 * one}


def elements_gathered(case):
    """Count sources; gradients of all bases and sources; the same with tangents, and both again."""
    row = case.edges * case.width
    wide = case.hidden * row
    return {"forward": row, "backward": wide + row, "double_backward": wide + 3 * row}
