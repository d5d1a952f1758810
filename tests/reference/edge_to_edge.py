import numpy as np

from .scores import total


def forward(graph, h, *, exclude, reverse=None):
    into = total(graph.dst, _nodes(graph), h[graph.edge_ids])
    y = total(graph.edge_ids, graph.num_edges, into[graph.src])
    return y - _images(graph, exclude, reverse, h)


def backward(graph, h, gy, *, exclude, reverse=None):
    out = total(graph.src, _nodes(graph), gy[graph.edge_ids])
    gh = total(graph.edge_ids, graph.num_edges, out[graph.dst])
    return (gh - _images(graph, exclude, reverse, gy),)


def _nodes(graph):
    return max(graph.num_src, graph.num_dst)


def _images(graph, exclude, reverse, h):
    """Return the contribution of the reverse of each edge, once for each of its entries."""
    if exclude == "none":
        return 0
    counts = np.bincount(graph.edge_ids, minlength=graph.num_edges)[:, None]
    return counts * (reverse >= 0)[:, None] * h[reverse]
