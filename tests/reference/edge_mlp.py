import numpy as np

from .activations import ACTIVATIONS
from .scores import total

EPSILON = 1e-5


def forward(graph, x_src, params, x_dst, edge_features, **options):
    return _layers(graph, x_src, params, x_dst, edge_features, **options)[-1]


def backward(
    graph, x_src, params, x_dst, edge_features, gy, *, activation, norm, residual=False, **sizes
):
    options = {"activation": activation, "norm": norm, **sizes}
    inputs, weights, scale, z, h, centred, deviation, _ = _layers(
        graph, x_src, params, x_dst, edge_features, **options
    )
    _, slope = ACTIVATIONS[activation]
    g, last = gy, []
    if norm == "layer":
        unit = centred / deviation
        last = [(gy * unit).sum(0), gy.sum(0)]
        g = gy * scale
        along = (g * unit).mean(1, keepdims=True)
        g = (g - g.mean(1, keepdims=True) - unit * along) / deviation
    parts = []
    for layer in reversed(range(1, len(weights))):
        parts = [(g.T @ h[layer - 1]).ravel(), g.sum(0), *parts]
        g = slope(z[layer - 1]) * (g @ weights[layer])
    widths = [x.shape[1] for x in inputs]
    first = [(g.T @ x).ravel() for x in inputs]
    gx = np.split(g @ weights[0], np.cumsum(widths)[:-1], axis=1)
    rows = iter(gx)
    gsrc = total(graph.src, graph.num_src, next(rows))
    gdst = None if x_dst is None else total(graph.dst, graph.num_dst, next(rows))
    gedge = None
    if edge_features is not None:
        gentry = next(rows) + (gy if residual else 0)
        gedge = total(graph.edge_ids, graph.num_edges, gentry)
    return gsrc, np.concatenate([*first, g.sum(0), *parts, *last]), gdst, gedge


def preactivations(graph, x_src, params, x_dst, edge_features, **options):
    """Return the hidden layers of all entries before their activation."""
    _, _, _, z, *_ = _layers(graph, x_src, params, x_dst, edge_features, **options)
    return np.concatenate(z[:-1], axis=1)


def _layers(
    graph, x_src, params, x_dst, edge_features, *, hidden, depth, activation, norm, residual=False
):
    """Return inputs, weights, scale, all layers, their norm and the result."""
    inputs = [x_src[graph.src]]
    inputs += [] if x_dst is None else [x_dst[graph.dst]]
    inputs += [] if edge_features is None else [edge_features[graph.edge_ids]]
    place = 0

    def take(*shape):
        nonlocal place
        place += np.prod(shape)
        return params[place - np.prod(shape) : place].reshape(shape)

    weights = [np.concatenate([take(hidden, x.shape[1]) for x in inputs], axis=1)]
    biases = [take(hidden)]
    for _ in range(depth - 1):
        weights.append(take(hidden, hidden))
        biases.append(take(hidden))
    rest = len(params) - place
    out = rest // (hidden + 1 + 2 * (norm == "layer"))
    weights.append(take(out, hidden))
    biases.append(take(out))
    value, _ = ACTIVATIONS[activation]
    z, h = [], [np.concatenate(inputs, axis=1)]
    for weight, bias in zip(weights, biases, strict=True):
        z.append(h[-1] @ weight.T + bias)
        h.append(value(z[-1]))
    y = z[-1]
    scale = centred = deviation = None
    if norm == "layer":
        scale, shift = take(out), take(out)
        centred = y - y.mean(1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON)
        y = scale * centred / deviation + shift
    if residual:
        y = y + edge_features[graph.edge_ids]
    return inputs, weights, scale, z, h[1:], centred, deviation, y
