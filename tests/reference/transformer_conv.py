import numpy as np

from .scores import by_heads, flat, softmax, softmax_back, total


def forward(graph, query, key, value, edge_features, mask, **options):
    given = _Given(graph, query, key, value, edge_features, mask, **options)
    y = total(graph.dst, graph.num_dst, given.weights[..., None] * given.v)
    return flat(y) if given.concat else y.mean(1)


def backward(graph, query, key, value, edge_features, mask, gy, **options):
    given = _Given(graph, query, key, value, edge_features, mask, **options)
    heads = given.heads
    gy = by_heads(gy, heads) if given.concat else np.repeat(gy[:, None] / heads, heads, axis=1)
    products = (gy[graph.dst] * given.v).sum(2)
    gscore = softmax_back(graph, given.alpha, products * given.factors) * given.scale
    by_key = gscore[..., None] * given.q
    by_value = given.weights[..., None] * gy[graph.dst]
    gquery = total(graph.dst, graph.num_dst, gscore[..., None] * given.k)
    gkey = total(graph.src, graph.num_src, by_key)
    gvalue = total(graph.src, graph.num_src, by_value)
    gedge = gmask = None
    if edge_features is not None:
        gedge = total(graph.edge_ids, graph.num_edges, by_key + by_value)
        gedge = gedge.reshape(edge_features.shape)
    if mask is not None:
        gmask = total(graph.edge_ids, graph.num_edges, given.alpha * products)
    shaped = gquery.reshape(query.shape), gkey.reshape(key.shape), gvalue.reshape(value.shape)
    return *shaped, gedge, gmask


def attention_of(*arguments, **options):
    return _Given(*arguments, **options).alpha


class _Given:
    """Queries, keys and values per entry, [entries, heads, width], and derived arrays."""

    def __init__(self, graph, query, key, value, edge_features, mask, *, heads, concat=True):
        self.heads, self.concat = heads, concat
        self.q = by_heads(query, heads)[graph.dst]
        self.k, self.v = by_heads(key, heads)[graph.src], by_heads(value, heads)[graph.src]
        if edge_features is not None:
            f = by_heads(edge_features, heads)[graph.edge_ids]
            self.k, self.v = self.k + f, self.v + f
        self.scale = self.q.shape[2] ** -0.5
        self.alpha = softmax(graph, (self.q * self.k).sum(2) * self.scale)
        self.factors = np.ones((1, heads)) if mask is None else mask[graph.edge_ids]
        self.weights = self.factors * self.alpha
