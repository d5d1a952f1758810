import numpy as np

from .scores import ACTIVATIONS, by_heads, flat, softmax, softmax_back, total


def forward(graph, x_src, x_dst, attention, edge_features, mask, **options):
    given = _Given(graph, x_src, x_dst, attention, edge_features, mask, **options)
    y = total(graph.dst, graph.num_dst, given.weights[..., None] * given.x[graph.src])
    return flat(y) if given.concat else y.mean(1)


def backward(graph, x_src, x_dst, attention, edge_features, mask, gy, **options):
    given = _Given(graph, x_src, x_dst, attention, edge_features, mask, **options)
    gy = (
        by_heads(gy, given.heads)
        if given.concat
        else np.repeat(gy[:, None] / given.heads, given.heads, axis=1)
    )
    products = (gy[graph.dst] * given.x[graph.src]).sum(2)
    gscore = softmax_back(graph, given.alpha, products * given.factors) * given.slope
    gx = total(graph.src, graph.num_src, given.weights[..., None] * gy[graph.dst])
    blocks, results = [], []
    for ids, size, values, weights, extra in (
        (graph.src, graph.num_src, given.x, given.blocks[0], gx),
        (graph.dst, graph.num_dst, given.y, given.blocks[1], 0),
        (graph.edge_ids, graph.num_edges, given.f, given.blocks[2], 0),
    ):
        sums = total(ids, size, gscore)[..., None]
        results.append(sums * weights + extra)
        blocks.append((sums * values).sum(0).ravel())
    gedge = None if edge_features is None else results[2].reshape(edge_features.shape)
    gmask = None if mask is None else total(graph.edge_ids, graph.num_edges, given.alpha * products)
    gx_src, gx_dst = results[0].reshape(x_src.shape), results[1].reshape(x_dst.shape)
    return gx_src, gx_dst, np.concatenate(blocks), gedge, gmask


def preactivations(*arguments, **options):
    return _Given(*arguments, **options).z


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
        self.x, self.y = by_heads(x_src, heads), by_heads(x_dst, heads)
        width = self.x.shape[2]
        self.f = np.zeros((graph.num_edges, heads, 0))
        if edge_features is not None:
            self.f = by_heads(edge_features, heads)
        parts = np.split(attention, [heads * width, 2 * heads * width])
        self.blocks = [part.reshape(heads, len(part) // heads) for part in parts]
        a_src, a_dst, a_edge = self.blocks
        z = (self.x * a_src).sum(2)[graph.src] + (self.y * a_dst).sum(2)[graph.dst]
        z = z + (self.f * a_edge).sum(2)[graph.edge_ids]
        self.z = z
        value, slope = ACTIVATIONS[activation]
        self.alpha, self.slope = softmax(graph, value(z, negative_slope)), slope(z, negative_slope)
        self.factors = np.ones((1, heads)) if mask is None else mask[graph.edge_ids]
        self.weights = self.factors * self.alpha
