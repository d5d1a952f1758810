"""Network of two hidden layers and a layer norm of every edge, from its nodes and itself."""

from benchmarks.problem import normal


def inputs(case, rng):
    width, hidden = case.width, case.hidden
    shapes = (hidden, 3 * width), (hidden,), (hidden, hidden), (hidden,), (width, hidden), (width,)
    names = "first", "first_bias", "second", "second_bias", "last", "last_bias"
    layers = {
        name: normal(case, rng, *shape) / shape[-1] ** 0.5
        for name, shape in zip(names, shapes, strict=True)
    }
    return {
        "x_src": normal(case, rng, case.nodes, width),
        "x_dst": normal(case, rng, case.nodes, width),
        "edge_features": normal(case, rng, case.edges, width),
        **layers,
        "scale": normal(case, rng, width),
        "shift": normal(case, rng, width),
    }


def output_shape(case):
    return case.edges, case.width


def in_torch(graph, x_src, x_dst, edge_features, *layers):
    import torch
    from torch.nn.functional import layer_norm, linear, silu

    first, first_bias, second, second_bias, last, last_bias, scale, shift = layers
    ends = x_src.index_select(0, graph.src), x_dst.index_select(0, graph.dst)
    h = silu(linear(torch.cat([*ends, edge_features], 1), first, first_bias))
    h = linear(silu(linear(h, second, second_bias)), last, last_bias)
    return layer_norm(h, h.shape[1:], scale, shift)


def in_jax(graph, x_src, x_dst, edge_features, *layers):
    import jax

    first, first_bias, second, second_bias, last, last_bias, scale, shift = layers
    h = jax.numpy.concatenate([x_src[graph.src], x_dst[graph.dst], edge_features], 1)
    h = jax.nn.silu(h @ first.T + first_bias)
    h = jax.nn.silu(h @ second.T + second_bias) @ last.T + last_bias
    return jax.nn.standardize(h, epsilon=1e-5) * scale + shift


def in_pyops(case, graph):
    import pyops

    options = {"hidden": case.hidden, "depth": 2, "activation": "silu", "norm": "layer"}
    return pyops.edge_mlp, (graph.packed,), options


def pack(x_src, x_dst, edge_features, *layers):
    """Pack the layers into one block, the second argument."""
    from pyops.blocks import pack_edge_network

    widths = {"src_width": x_src.shape[1], "dst_width": x_dst.shape[1]}
    params = pack_edge_network(layers[:6:2], layers[1:6:2], *layers[6:], **widths)
    return x_src, params, x_dst, edge_features


def unpack(case, x_src, params, x_dst, edge_features):
    """Unpack the block into the layers."""
    import numpy as np

    from pyops.blocks import unpack_edge_network

    widths = dict.fromkeys(("src_width", "dst_width", "edge_width"), case.width)
    parts = unpack_edge_network(params, **widths, hidden=case.hidden, depth=2, norm="layer")
    weights = np.concatenate(parts.first, axis=1), *parts.weights
    layers = [part for pair in zip(weights, parts.biases, strict=True) for part in pair]
    return x_src, x_dst, edge_features, *layers, parts.scale, parts.shift


def multiply_adds(case):
    """Count products with features of nodes once for each node, and no layer twice."""
    entries = case.edges * case.hidden * (2 * case.width + case.hidden)
    forward = entries + 2 * case.nodes * case.hidden * case.width
    return {"forward": forward, "backward": 2 * forward, "double_backward": 5 * forward}


def elements_moved(case):
    """Count features of edges read and results written, and the same with gradients."""
    edges = case.edges * case.width
    return {"forward": 2 * edges, "backward": 3 * edges, "double_backward": 5 * edges}
