import numpy as np

from .scores import total


def forward(graph, x, edge, weight, own, *, reduce):
    shares = _shares(graph, x, edge, weight, reduce)
    y = total(graph.dst, graph.num_dst, shares * _messages(graph, x, edge, weight))
    return y if own is None else np.concatenate([y, own], 1)


def backward(graph, x, edge, weight, own, gy, *, reduce):
    gy, gown = np.split(gy, [sum(a.shape[1] for a in (x, edge) if a is not None)], axis=1)
    by_message = _shares(graph, x, edge, weight, reduce) * gy[graph.dst]
    weights = 1 if weight is None else weight[graph.edge_ids][:, None]
    gx, gedge = np.split(weights * by_message, [0 if x is None else x.shape[1]], axis=1)
    by_weight = (by_message * _messages(graph, x, edge, None)).sum(1)
    return (
        None if x is None else total(graph.src, graph.num_src, gx),
        None if edge is None else total(graph.edge_ids, graph.num_edges, gedge),
        None if weight is None else total(graph.edge_ids, graph.num_edges, by_weight),
        None if own is None else gown,
    )


def _messages(graph, x, edge, weight):
    parts = [] if x is None else [x[graph.src]]
    parts += [] if edge is None else [edge[graph.edge_ids]]
    return np.concatenate(parts, 1) * (1 if weight is None else weight[graph.edge_ids][:, None])


def _shares(graph, x, edge, weight, reduce):
    """Return the weight of each message in the result: of a maximum, 1 for its first occurrence."""
    messages = _messages(graph, x, edge, weight).real
    if reduce == "sum":
        return np.ones_like(messages)
    if reduce == "mean":
        degrees = np.bincount(graph.dst, minlength=graph.num_dst)
        return np.ones_like(messages) / degrees[graph.dst][:, None]
    shares = np.zeros_like(messages)
    for node in np.unique(graph.dst):
        entries = np.flatnonzero(graph.dst == node)
        pick = np.argmax if reduce == "max" else np.argmin
        winners = entries[pick(messages[entries], 0)]
        shares[winners, np.arange(messages.shape[1])] = 1
    return shares
