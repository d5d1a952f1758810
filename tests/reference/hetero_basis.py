import numpy as np

from .scores import flat, total


def forward(graph, x, weight):
    terms = weight[graph.edge_ids][:, :, None] * x[graph.src][:, None, :]
    return flat(total(graph.dst, graph.num_dst, terms))


def backward(graph, x, weight, gy):
    by_basis = gy.reshape(graph.num_dst, weight.shape[1], x.shape[1])[graph.dst]
    to_x = np.einsum("eb,ebc->ec", weight[graph.edge_ids], by_basis)
    to_weight = np.einsum("ec,ebc->eb", x[graph.src], by_basis)
    return (
        total(graph.src, graph.num_src, to_x),
        total(graph.edge_ids, graph.num_edges, to_weight),
    )
