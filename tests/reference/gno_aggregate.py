import numpy as np


def forward(graph, features, kappa):
    messages = np.einsum("ef,efo->eo", features[graph.src], _matrices(graph, features, kappa))
    y = np.zeros((graph.num_dst, messages.shape[1]), messages.dtype)
    np.add.at(y, graph.dst, messages)
    return y


def backward(graph, features, kappa, gy):
    matrices = _matrices(graph, features, kappa)
    to_features = np.einsum("efo,eo->ef", matrices, gy[graph.dst])
    to_matrices = np.einsum("ef,eo->efo", features[graph.src], gy[graph.dst])
    gfeatures = np.zeros(features.shape, to_features.dtype)
    gkappa = np.zeros(kappa.shape, to_matrices.dtype)
    np.add.at(gfeatures, graph.src, to_features)
    np.add.at(gkappa, graph.edge_ids, to_matrices.reshape(graph.num_entries, kappa.shape[1]))
    return gfeatures, gkappa


def _matrices(graph, features, kappa):
    """Return the matrix of each entry."""
    inward = features.shape[1]
    return kappa[graph.edge_ids].reshape(graph.num_entries, inward, kappa.shape[1] // inward)
