"""Sum over the edges into each edge's source, except its reverse, as in D-MPNN."""

import numpy as np

from benchmarks.problem import normal


def inputs(case, rng):
    return {"h": normal(case, rng, case.edges, case.width)}


def output_shape(case):
    return case.edges, case.width


def pairs(case, src, dst):
    """Return pairs of edges and reverses, sorted by destination; the last is single if odd."""
    half = case.edges // 2
    ends = np.stack([src[:half], dst[:half]])
    last = np.stack([src[2 * half :], dst[2 * half :]])
    both = np.concatenate([ends, ends[::-1], last], axis=1)
    partner = np.concatenate([np.arange(half) + half, np.arange(half), -np.ones_like(last[0])])
    order = np.argsort(both[1], kind="stable")
    place = np.append(np.argsort(order), -1)
    src, dst = both[:, order]
    offsets = np.searchsorted(dst, np.arange(case.nodes + 1))
    return {"src": src, "dst": dst, "offsets": offsets, "reverse": place[partner[order]]}


def in_torch(graph, h):
    import torch

    into = h.new_zeros(len(graph.offsets) - 1, h.shape[1]).index_add(0, graph.dst, h)
    images = h.index_select(0, graph.reverse.clamp(min=0))
    return into.index_select(0, graph.src) - torch.where(graph.reverse[:, None] < 0, 0, images)


def in_jax(graph, h):
    import jax

    rows = {"num_segments": len(graph.offsets) - 1, "indices_are_sorted": True}
    into = jax.ops.segment_sum(h, graph.dst, **rows)
    images = jax.numpy.where(graph.reverse[:, None] < 0, 0, h[graph.reverse])
    return into[graph.src] - images


def in_pyops(case, graph):
    import pyops

    options = {"exclude": "image", "reverse": graph.reverse}
    return pyops.edge_to_edge, (graph.packed,), options


def multiply_adds(case):
    return dict.fromkeys(("forward", "backward", "double_backward"), case.edges * case.width)


def elements_moved(case):
    """Count h read for the sums and for the reverses, y written."""
    return dict.fromkeys(("forward", "backward", "double_backward"), 3 * case.edges * case.width)
