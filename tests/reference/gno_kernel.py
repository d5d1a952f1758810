import numpy as np

from .activations import ACTIVATIONS


def forward(coords, params, *, hidden, in_features, out_features, activation):
    _, _, v, b_v = _parts(params, coords.shape[1], hidden)
    value, _ = ACTIVATIONS[activation]
    return value(preactivations(coords, params, hidden)) @ v.T + b_v


def backward(coords, params, gy, *, hidden, in_features, out_features, activation):
    u, _, v, _ = _parts(params, coords.shape[1], hidden)
    value, slope = ACTIVATIONS[activation]
    z = preactivations(coords, params, hidden)
    gz = slope(z) * (gy @ v)
    parts = coords.T @ gz, gz.sum(0), value(z).T @ gy, gy.sum(0)
    return gz @ u, np.concatenate([part.ravel() for part in parts])


def preactivations(coords, params, hidden):
    u, b_u, _, _ = _parts(params, coords.shape[1], hidden)
    return coords @ u.T + b_u


def _parts(params, dim, hidden):
    """Return U, b_u, V and b_v of a block that holds the matrices column by column."""
    layer = hidden * (dim + 1)
    u, b_u, rest = np.split(params, [hidden * dim, layer])
    entries = len(rest) // (hidden + 1)
    v, b_v = np.split(rest, [hidden * entries])
    return u.reshape(dim, hidden).T, b_u, v.reshape(hidden, entries).T, b_v
