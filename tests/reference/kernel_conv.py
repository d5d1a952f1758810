import numpy as np

from . import gno_aggregate


def forward(graph, features, hidden_layer, weight, bias, edge_weight, *, kernel, reduce):
    kappa = _weighted(edge_weight, _entries(hidden_layer, weight, bias))
    y = SUMS[kernel].forward(graph, features, kappa)
    return y / _divisors(graph, reduce)


def backward(graph, features, hidden_layer, weight, bias, edge_weight, gy, *, kernel, reduce):
    entries = _entries(hidden_layer, weight, bias)
    kappa = _weighted(edge_weight, entries)
    gy = gy / _divisors(graph, reduce)
    gfeatures, gkappa = SUMS[kernel].backward(graph, features, kappa, gy)
    gentries = _weighted(edge_weight, gkappa)
    return (
        gfeatures,
        gentries @ weight,
        gentries.T @ hidden_layer,
        None if bias is None else gentries.sum(0),
        None if edge_weight is None else (gkappa * entries).sum(1),
    )


class _Diagonal:
    """Sums of the features of an entry's source by the elements of its edge."""

    @staticmethod
    def forward(graph, features, kappa):
        messages = features[graph.src] * kappa[graph.edge_ids]
        y = np.zeros((graph.num_dst, features.shape[1]), messages.dtype)
        np.add.at(y, graph.dst, messages)
        return y

    @staticmethod
    def backward(graph, features, kappa, gy):
        to_features = kappa[graph.edge_ids] * gy[graph.dst]
        to_kappa = features[graph.src] * gy[graph.dst]
        gfeatures = np.zeros(features.shape, to_features.dtype)
        gkappa = np.zeros(kappa.shape, to_kappa.dtype)
        np.add.at(gfeatures, graph.src, to_features)
        np.add.at(gkappa, graph.edge_ids, to_kappa)
        return gfeatures, gkappa


SUMS = {"matrix": gno_aggregate, "diagonal": _Diagonal}


def _entries(hidden_layer, weight, bias):
    return hidden_layer @ weight.T + (0 if bias is None else bias)


def _weighted(edge_weight, entries):
    return entries if edge_weight is None else edge_weight[:, None] * entries


def _divisors(graph, reduce):
    degrees = np.bincount(graph.dst, minlength=graph.num_dst)
    return np.maximum(degrees, 1)[:, None] if reduce == "mean" else 1
