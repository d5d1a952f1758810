import numpy as np

from .scores import total


def forward(graph, x, weight):
    return total(graph.dst, graph.num_dst, _factors(graph, weight) * x[graph.src])


def backward(graph, x, weight, gy):
    gx = total(graph.src, graph.num_src, _factors(graph, weight) * gy[graph.dst])
    if weight is None:
        return gx, None
    by_entry = (_factors(graph, None) * x[graph.src] * gy[graph.dst]).sum(1)
    return gx, total(graph.edge_ids, graph.num_edges, by_entry)


def _factors(graph, weight):
    """Return the factor of each entry."""
    into = np.bincount(graph.dst, minlength=graph.num_dst)[graph.dst]
    out = np.bincount(graph.src, minlength=graph.num_src)[graph.src]
    weights = 1 if weight is None else weight[graph.edge_ids]
    return (weights / np.sqrt(into * out))[:, None]
