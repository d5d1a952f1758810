import numpy as np

from .scores import ACTIVATIONS, by_heads, flat, softmax, softmax_back, total


def forward(graph, x_src, x_dst, attention, edge_features, mask, **options):
    given = _Given(graph, x_src, x_dst, attention, edge_features, mask, **options)
    y = total(graph.dst, graph.num_dst, given.weights[..., None] * given.x[graph.src])
    return flat(y) if given.concat else y.mean(1)


def backward(graph, x_src, x_dst, attention, edge_features, mask, gy, **options):
    given = _Given(graph, x_src, x_dst, attention, edge_features, mask, **options)
    heads = given.heads
    gy = by_heads(gy, heads) if given.concat else np.repeat(gy[:, None] / heads, heads, axis=1)
    products = (gy[graph.dst] * given.x[graph.src]).sum(2)
    glogit = softmax_back(graph, given.alpha, products * given.factors)[..., None]
    gsum = glogit * given.a * given.slope
    gx = total(graph.src, graph.num_src, gsum + given.weights[..., None] * gy[graph.dst])
    gy_dst = total(graph.dst, graph.num_dst, gsum)
    gedge = gmask = None
    if edge_features is not None:
        gedge = total(graph.edge_ids, graph.num_edges, gsum).reshape(edge_features.shape)
    if mask is not None:
        gmask = total(graph.edge_ids, graph.num_edges, given.alpha * products)
    ga = (glogit * given.value).sum(0).ravel()
    return gx.reshape(x_src.shape), gy_dst.reshape(x_dst.shape), ga, gedge, gmask


def preactivations(*arguments, **options):
    return _Given(*arguments, **options).r


def attention_of(*arguments, **options):
    return _Given(*arguments, **options).alpha


class _Given:
    """Inputs as [rows, heads, width], and derived arrays per entry."""

    def __init__(
        self,
        graph,
        x_src,
        x_dst,
        attention,
        edge_features,
        mask,
        *,
        heads,
        concat=True,
        activation="leaky_relu",
        negative_slope=0.2,
    ):
        self.heads, self.concat = heads, concat
        self.x, y = by_heads(x_src, heads), by_heads(x_dst, heads)
        self.a = attention.reshape(heads, -1)
        r = self.x[graph.src] + y[graph.dst]
        if edge_features is not None:
            r = r + by_heads(edge_features, heads)[graph.edge_ids]
        self.r = r
        value, slope = ACTIVATIONS[activation]
        self.value, self.slope = value(r, negative_slope), slope(r, negative_slope)
        self.alpha = softmax(graph, (self.a * self.value).sum(2))
        self.factors = np.ones((1, heads)) if mask is None else mask[graph.edge_ids]
        self.weights = self.factors * self.alpha
