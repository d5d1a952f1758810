"""Attention weights and the sums that they weight, composed of functions of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from .._call import MaybeTensor
    from .entries import Entries


def _by_heads(x: Tensor, heads: int) -> Tensor:
    return x if x.dim() == 3 else x.unflatten(1, (heads, -1))


def _weighted(graph: Entries, alpha: Tensor, mask: MaybeTensor, x: Tensor, concat: bool) -> Tensor:
    """Sum the features of incoming entries, times weights and mask."""
    weights = alpha if mask is None else alpha * graph.gather_edges(mask)
    y = graph.sum_incoming(weights.unsqueeze(2) * x)
    return y.flatten(1) if concat else y.mean(1)


def _act(name: str, z: Tensor, slope: float) -> Tensor:
    if name == "leaky_relu":
        return functional.leaky_relu(z, slope)
    if name == "identity":
        return z
    activated: Tensor = getattr(functional, name)(z)
    return activated


def gat_weights(
    graph: Entries,
    x_src: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    edge_features: MaybeTensor,
    mask: MaybeTensor,
    *,
    heads: int,
    concat: bool,
    activation: str,
    negative_slope: float,
) -> Tensor:
    x, y = _by_heads(x_src, heads), _by_heads(x_dst, heads)
    size = heads * x.shape[2]
    score = (x * attention[:size].view(heads, -1)).sum(2).index_select(0, graph.src)
    other = (y * attention[size : 2 * size].view(heads, -1)).sum(2)
    score = score + other.index_select(0, graph.dst)
    if edge_features is not None:
        features = _by_heads(edge_features, heads)
        score = score + graph.gather_edges(
            (features * attention[2 * size :].view(heads, -1)).sum(2)
        )
    return graph.softmax(_act(activation, score, negative_slope))


def gat_v2_weights(
    graph: Entries,
    x_src: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    edge_features: MaybeTensor,
    mask: MaybeTensor,
    *,
    heads: int,
    concat: bool,
    activation: str,
    negative_slope: float,
) -> Tensor:
    r = _by_heads(x_src, heads).index_select(0, graph.src)
    r = r + _by_heads(x_dst, heads).index_select(0, graph.dst)
    if edge_features is not None:
        r = r + graph.gather_edges(_by_heads(edge_features, heads))
    value = _act(activation, r, negative_slope)
    return graph.softmax((value * attention.view(heads, -1)).sum(2))


def _keys(graph: Entries, rows: Tensor, edge_features: MaybeTensor, heads: int) -> Tensor:
    found = _by_heads(rows, heads).index_select(0, graph.src)
    if edge_features is None:
        return found
    return found + graph.gather_edges(_by_heads(edge_features, heads))


def transformer_conv_weights(
    graph: Entries,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edge_features: MaybeTensor,
    mask: MaybeTensor,
    *,
    heads: int,
    concat: bool,
) -> Tensor:
    queries = _by_heads(query, heads).index_select(0, graph.dst)
    score = (queries * _keys(graph, key, edge_features, heads)).sum(2)
    return graph.softmax(score / queries.shape[2] ** 0.5)


def sum_by(weights: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the attention layer with these weights."""

    def value(
        graph: Entries, x: Tensor, *given: MaybeTensor, heads: int, concat: bool, **options: object
    ) -> Tensor:
        alpha = weights(graph, x, *given, heads=heads, concat=concat, **options)
        rows = _by_heads(x, heads).index_select(0, graph.src)
        return _weighted(graph, alpha, given[-1], rows, concat)

    return value


def transformer_conv(
    graph: Entries,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edge_features: MaybeTensor,
    mask: MaybeTensor,
    *,
    heads: int,
    concat: bool,
) -> Tensor:
    inputs = query, key, value, edge_features, mask
    alpha = transformer_conv_weights(graph, *inputs, heads=heads, concat=concat)
    return _weighted(graph, alpha, mask, _keys(graph, value, edge_features, heads), concat)
