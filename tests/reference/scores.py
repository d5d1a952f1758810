"""Shared parts of the attention references: activations of scores, softmax over entries."""

import numpy as np


def _sigmoid(z):
    return 1 / (1 + np.exp(-z))


def _where(z, positive, negative):
    return np.where(z.real > 0, positive, negative)


# Value and slope, with the slope of leaky_relu.
ACTIVATIONS = {
    "identity": (lambda z, _: z, lambda z, _: 1 + 0 * z),
    "relu": (lambda z, _: z * (z.real > 0), lambda z, _: 1.0 * (z.real > 0)),
    "sigmoid": (lambda z, _: _sigmoid(z), lambda z, _: _sigmoid(z) * (1 - _sigmoid(z))),
    "tanh": (lambda z, _: np.tanh(z), lambda z, _: 1 - np.tanh(z) * np.tanh(z)),
    "elu": (
        lambda z, _: _where(z, z, np.exp(_where(z, 0, z)) - 1),
        lambda z, _: _where(z, 1, np.exp(_where(z, 0, z))),
    ),
    "leaky_relu": (lambda z, a: _where(z, z, a * z), lambda z, a: _where(z, 1, a)),
}


def total(ids, size, terms):
    """Sum the terms of each id."""
    sums = np.zeros((size, *terms.shape[1:]), terms.dtype)
    np.add.at(sums, ids, terms)
    return sums


def by_heads(x, heads):
    """Return [rows, heads, width], from rows in that shape or with flattened heads."""
    return x if x.ndim == 3 else x.reshape(len(x), heads, x.shape[1] // heads)


def flat(x):
    return x.reshape(len(x), x.shape[1] * x.shape[2])


def softmax(graph, z):
    """Return the softmax over incoming entries of each destination, shifted by the maximum."""
    top = np.full((graph.num_dst, *z.shape[1:]), -np.inf)
    np.maximum.at(top, graph.dst, z.real)
    powers = np.exp(z - top[graph.dst])
    return powers / total(graph.dst, graph.num_dst, powers)[graph.dst]


def softmax_back(graph, alpha, galpha):
    """Return the gradient of the softmax by z."""
    means = total(graph.dst, graph.num_dst, alpha * galpha)
    return alpha * (galpha - means[graph.dst])
