import numpy as np

from .scores import total

SHARES = "sum", "mean", "max", "min", "median", "amax", "amin"
"""Reductions that are sums of messages times their shares in the result."""


def forward(graph, x, edge, weight, own, *, reduce, **options):
    messages = _messages(graph, x, edge, weight)
    if reduce in SHARES:
        y = total(graph.dst, graph.num_dst, _shares(graph, messages.real, reduce) * messages)
    else:
        y = np.zeros((graph.num_dst, messages.shape[1]), messages.dtype)
        for node, entries in _rows(graph):
            y[node] = _value(messages[entries], reduce, **options)
    return y if own is None else np.concatenate([y, own], 1)


def backward(graph, x, edge, weight, own, gy, *, reduce, **options):
    gy, gown = np.split(gy, [sum(a.shape[1] for a in (x, edge) if a is not None)], axis=1)
    messages = _messages(graph, x, edge, weight)
    if reduce in SHARES:
        slopes = _shares(graph, messages.real, reduce)
    else:
        slopes = np.zeros_like(messages)
        for _, entries in _rows(graph):
            slopes[entries] = _slopes(messages[entries], reduce, **options)
    by_message = slopes * gy[graph.dst]
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


def _rows(graph):
    """Yield each destination that has entries, with these."""
    for node in np.unique(graph.dst):
        yield node, np.flatnonzero(graph.dst == node)


def _shares(graph, messages, reduce):
    """Return the weight of each message in the result.

    It is 1 for the first message that is the maximum, minimum or median, and shared by all of them
    for amax and amin: by all messages if one of them is NaN.
    """
    if reduce == "sum":
        return np.ones_like(messages)
    if reduce == "mean":
        degrees = np.bincount(graph.dst, minlength=graph.num_dst)
        return np.ones_like(messages) / degrees[graph.dst][:, None]
    shares = np.zeros_like(messages)
    for _, entries in _rows(graph):
        some = messages[entries]
        if reduce in ("amax", "amin"):
            top = (np.max if reduce == "amax" else np.min)(some, 0)
            equal = ~(some < top) if reduce == "amax" else ~(some > top)
            shares[entries] = equal / equal.sum(0)
            continue
        if reduce == "median":
            found = np.argmax(some == np.sort(some, 0)[(len(some) - 1) // 2], 0)
        else:
            found = (np.argmax if reduce == "max" else np.argmin)(some, 0)
        shares[entries[found], np.arange(messages.shape[1])] = 1
    return shares


def _deviations(m):
    """Return the differences from the mean: exactly 0 if all messages are equal."""
    from_first = m - m[0]
    return from_first - from_first.mean(0)


def _softmax(m, temperature):
    powers = np.exp(temperature * m - (temperature * m.real).max(0))
    return powers / powers.sum(0)


def _value(m, reduce, *, temperature=1.0, power=1.0):
    """Return the reduction of the messages into one destination."""
    if reduce == "var":
        return (_deviations(m) ** 2).mean(0)
    if reduce == "std":
        return np.sqrt((_deviations(m) ** 2).mean(0))
    if reduce == "softmax":
        return (_softmax(m, temperature) * m).sum(0)
    if reduce == "powermean":
        return (m**power).mean(0) ** (1 / power)
    assert reduce == "mul"
    return m.prod(0)


def _slopes(m, reduce, *, temperature=1.0, power=1.0):
    """Return the derivatives of the reduction by the messages into one destination."""
    y = _value(m, reduce, temperature=temperature, power=power)
    if reduce == "var":
        return 2 * _deviations(m) / len(m)
    if reduce == "std":
        return _deviations(m) / (len(m) * np.where(y.real == 0, 1, y))
    if reduce == "softmax":
        return _softmax(m, temperature) * (1 + temperature * (m - y))
    if reduce == "powermean":
        return m ** (power - 1) * y ** (1 - power) / len(m)
    ones = np.ones_like(m[:1])
    before = np.cumprod(np.concatenate([ones, m[:-1]]), 0)
    after = np.cumprod(np.concatenate([ones, m[:0:-1]]), 0)[::-1]
    return before * after
