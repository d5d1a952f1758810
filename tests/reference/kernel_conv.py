import numpy as np

from . import gno_aggregate


def forward(graph, features, hidden_layer, weight, bias, edge_weight, *, kernel, reduce):
    kappa = _weighted(edge_weight, _entries(hidden_layer, weight, bias))
    y = gno_aggregate.forward(graph, features, _matrices(kappa, kernel))
    return y / _divisors(graph, reduce)


def backward(graph, features, hidden_layer, weight, bias, edge_weight, gy, *, kernel, reduce):
    entries = _entries(hidden_layer, weight, bias)
    matrices = _matrices(_weighted(edge_weight, entries), kernel)
    gy = gy / _divisors(graph, reduce)
    gfeatures, gkappa = gno_aggregate.backward(graph, features, matrices, gy)
    if kernel == "diagonal":
        width = features.shape[1]
        gkappa = np.einsum("eff->ef", gkappa.reshape(-1, width, width))
    gentries = _weighted(edge_weight, gkappa)
    return (
        gfeatures,
        gentries @ weight,
        gentries.T @ hidden_layer,
        None if bias is None else gentries.sum(0),
        None if edge_weight is None else (gkappa * entries).sum(1),
    )


def _entries(hidden_layer, weight, bias):
    return hidden_layer @ weight.T + (0 if bias is None else bias)


def _weighted(edge_weight, entries):
    return entries if edge_weight is None else edge_weight[:, None] * entries


def _matrices(kappa, kernel):
    """Return the matrices of the edges, row by row."""
    if kernel == "matrix":
        return kappa
    edges, width = kappa.shape
    return np.einsum("ef,fo->efo", kappa, np.eye(width)).reshape(edges, width * width)


def _divisors(graph, reduce):
    degrees = np.bincount(graph.dst, minlength=graph.num_dst)
    return np.maximum(degrees, 1)[:, None] if reduce == "mean" else 1
