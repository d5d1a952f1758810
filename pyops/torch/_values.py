"""Forward passes of operators, composed of functions of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ._call import Maybe


class Entries(NamedTuple):
    """Graph as int64 index tensors and sizes."""

    src: Tensor
    dst: Tensor
    ids: Tensor | None
    num_src: int
    num_dst: int
    num_edges: int

    def rows(self, edge: Tensor) -> Tensor:
        """Gather rows of an edge array, one per entry."""
        return edge if self.ids is None else edge.index_select(0, self.ids)

    def into(self, terms: Tensor) -> Tensor:
        """Sum over the incoming entries of each destination."""
        return total(self.dst, self.num_dst, terms)

    def degrees(self, like: Tensor) -> Tensor:
        return self.into(torch.ones_like(self.dst, dtype=like.dtype))

    def extreme(self, terms: Tensor, kind: str) -> Tensor:
        """Return the maximum or minimum over the incoming entries; infinite if there are none."""
        start = float("-inf" if kind == "amax" else "inf")
        return _reduced(self.dst, self.num_dst, terms, start, kind)

    def softmax(self, scores: Tensor) -> Tensor:
        """Apply softmax over the incoming entries of each destination."""
        top = self.extreme(scores, "amax")
        powers = (scores - top.index_select(0, self.dst)).exp()
        return powers / self.into(powers).index_select(0, self.dst)


def total(ids: Tensor, size: int, terms: Tensor) -> Tensor:
    """Sum the terms of each id."""
    return _reduced(ids, size, terms, 0.0, "sum")


def _reduced(ids: Tensor, size: int, terms: Tensor, start: float, kind: str) -> Tensor:
    """Reduce the terms of each id, flattened to a vector: exporters support no more than that."""
    if terms.dim() == 1:
        return terms.new_full((size,), start).scatter_reduce(0, ids, terms, kind)
    rows = terms.flatten(1)
    columns = torch.arange(rows.shape[1], device=terms.device)
    places = (ids.unsqueeze(1) * rows.shape[1] + columns).flatten()
    found = terms.new_full((size * rows.shape[1],), start)
    found = found.scatter_reduce(0, places, rows.flatten(), kind)
    return found.view(size, *terms.shape[1:])


def _by_heads(x: Tensor, heads: int) -> Tensor:
    return x if x.dim() == 3 else x.unflatten(1, (heads, -1))


def _weighted(graph: Entries, alpha: Tensor, mask: Maybe, x: Tensor, concat: bool) -> Tensor:
    """Sum the features of incoming entries, times weights and mask."""
    weights = alpha if mask is None else alpha * graph.rows(mask)
    y = graph.into(weights.unsqueeze(2) * x)
    return y.flatten(1) if concat else y.mean(1)


def _act(name: str, z: Tensor, slope: float) -> Tensor:
    if name == "leaky_relu":
        return functional.leaky_relu(z, slope)
    return z if name == "identity" else getattr(functional, name)(z)


def aggregate(
    graph: Entries, x: Maybe, edge: Maybe, weight: Maybe, own: Maybe, *, reduce: str
) -> Tensor:
    parts = [] if x is None else [x.index_select(0, graph.src)]
    parts += [] if edge is None else [graph.rows(edge)]
    messages = torch.cat(parts, 1)
    if weight is not None:
        messages = messages * graph.rows(weight).unsqueeze(1)
    degrees = graph.degrees(messages).unsqueeze(1)
    if reduce in ("max", "min"):
        y = graph.extreme(messages, f"a{reduce}")
        y = torch.where(degrees > 0, y, torch.zeros_like(y))
    else:
        y = graph.into(messages)
        y = y / degrees.clamp(min=1) if reduce == "mean" else y
    return y if own is None else torch.cat([y, own], 1)


def degree_normalised(graph: Entries, x: Tensor, weight: Maybe) -> Tensor:
    ones = torch.ones_like(graph.src, dtype=x.dtype)
    out = total(graph.src, graph.num_src, ones).index_select(0, graph.src)
    factors = (graph.degrees(x).index_select(0, graph.dst) * out).rsqrt()
    factors = factors if weight is None else factors * graph.rows(weight)
    return graph.into(factors.unsqueeze(1) * x.index_select(0, graph.src))


def edge_to_edge(graph: Entries, h: Tensor, *, exclude: str, reverse: Maybe = None) -> Tensor:
    nodes = graph.num_src + graph.num_dst  # an upper bound that serves both sides
    into = total(graph.dst, nodes, graph.rows(h)).index_select(0, graph.src)
    ones = torch.ones_like(graph.dst, dtype=h.dtype)
    if graph.ids is not None:
        into, ones = (total(graph.ids, graph.num_edges, terms) for terms in (into, ones))
    if exclude == "none" or reverse is None:
        return into
    images = h.index_select(0, reverse.long().clamp(min=0))
    return into - ((reverse >= 0).to(h.dtype) * ones).unsqueeze(1) * images


def edge_update(graph: Entries, x_src: Tensor, x_dst: Maybe, edge: Maybe, *, mode: str) -> Tensor:
    parts = [] if edge is None else [graph.rows(edge)]
    parts += [x_src.index_select(0, graph.src)]
    parts += [] if x_dst is None else [x_dst.index_select(0, graph.dst)]
    if mode == "concat":
        return torch.cat(parts, 1)
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


def gat_weights(
    graph: Entries,
    x_src: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    edge_features: Maybe,
    mask: Maybe,
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
        score = score + graph.rows((features * attention[2 * size :].view(heads, -1)).sum(2))
    return graph.softmax(_act(activation, score, negative_slope))


def gat_v2_weights(
    graph: Entries,
    x_src: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    edge_features: Maybe,
    mask: Maybe,
    *,
    heads: int,
    concat: bool,
    activation: str,
    negative_slope: float,
) -> Tensor:
    r = _by_heads(x_src, heads).index_select(0, graph.src)
    r = r + _by_heads(x_dst, heads).index_select(0, graph.dst)
    if edge_features is not None:
        r = r + graph.rows(_by_heads(edge_features, heads))
    value = _act(activation, r, negative_slope)
    return graph.softmax((value * attention.view(heads, -1)).sum(2))


def _keys(graph: Entries, rows: Tensor, edge_features: Maybe, heads: int) -> Tensor:
    found = _by_heads(rows, heads).index_select(0, graph.src)
    if edge_features is None:
        return found
    return found + graph.rows(_by_heads(edge_features, heads))


def transformer_conv_weights(
    graph: Entries,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edge_features: Maybe,
    mask: Maybe,
    *,
    heads: int,
    concat: bool,
) -> Tensor:
    asked = _by_heads(query, heads).index_select(0, graph.dst)
    score = (asked * _keys(graph, key, edge_features, heads)).sum(2)
    return graph.softmax(score / asked.shape[2] ** 0.5)


def attended(weights: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def value(
        graph: Entries, x: Tensor, *given: Maybe, heads: int, concat: bool, **options: Any
    ) -> Tensor:
        alpha = weights(graph, x, *given, heads=heads, concat=concat, **options)
        rows = _by_heads(x, heads).index_select(0, graph.src)
        return _weighted(graph, alpha, given[-1], rows, concat)

    return value


def transformer_conv(graph: Entries, *given: Any, heads: int, concat: bool) -> Tensor:
    alpha = transformer_conv_weights(graph, *given, heads=heads, concat=concat)
    _, _, value, edge_features, mask = given
    return _weighted(graph, alpha, mask, _keys(graph, value, edge_features, heads), concat)


def gno_kernel(
    coords: Tensor, params: Tensor, *, hidden: int, activation: str, **widths: int
) -> Tensor:
    dim = coords.shape[1]
    first, layer = hidden * dim, hidden * (dim + 1)
    z = coords @ params[:first].view(-1, hidden) + params[first:layer]
    values = getattr(functional, activation)(z)
    weights = params[layer:].view(hidden + 1, -1)
    return values @ weights[:-1] + weights[-1]


def gno_aggregate(graph: Entries, features: Tensor, kappa: Tensor) -> Tensor:
    matrices = graph.rows(kappa).unflatten(1, (features.shape[1], -1))
    sources = features.index_select(0, graph.src).unsqueeze(1)
    return graph.into((sources @ matrices).squeeze(1))


def gno_conv(graph: Entries, features: Tensor, coords: Tensor, params: Tensor, **given: Any) -> Any:
    return gno_aggregate(graph, features, gno_kernel(coords, params, **given))


def kernel_conv(
    graph: Entries,
    features: Tensor,
    hidden_layer: Tensor,
    weight: Tensor,
    bias: Maybe,
    edge_weight: Maybe,
    *,
    kernel: str,
    reduce: str,
) -> Tensor:
    kappa = functional.linear(hidden_layer, weight, bias)
    kappa = kappa if edge_weight is None else edge_weight.unsqueeze(1) * kappa
    if kernel == "matrix":
        y = gno_aggregate(graph, features, kappa)
    else:
        y = graph.into(features.index_select(0, graph.src) * graph.rows(kappa))
    return y / graph.degrees(y).clamp(min=1).unsqueeze(1) if reduce == "mean" else y


def hetero_basis(graph: Entries, x: Tensor, weight: Tensor) -> Tensor:
    terms = graph.rows(weight).unsqueeze(2) * x.index_select(0, graph.src).unsqueeze(1)
    return graph.into(terms).flatten(1)


def segment_softmax(graph: Entries, logits: Tensor) -> Tensor:
    return graph.softmax(graph.rows(logits))


def radial_basis(distances: Tensor, frequencies: Tensor, *, exponent: int) -> Tensor:
    inside = (distances > 0) & (distances < 1)
    x = torch.where(inside, distances, torch.full_like(distances, 0.5))
    series = torch.zeros_like(x)
    for k in reversed(range(exponent + 1)):  # of (1 - x)^-3, by Horner's scheme
        series = series * x + (k + 1) * (k + 2) // 2
    rest = 1 - x
    envelope = torch.where(inside, rest * rest * rest * series / x, torch.zeros_like(x))
    return envelope.unsqueeze(1) * (distances.unsqueeze(1) * frequencies).sin()


def _exponentials(poles: Tensor, points: int) -> Tensor:
    """Return exponentials at equidistant points from 0 to 1, one row per point."""
    places = torch.arange(points, dtype=poles.dtype, device=poles.device)
    steps = torch.full_like(places[:1], points - 1).clamp(min=1)
    return (-(places / steps).unsqueeze(1) * poles).exp()


def lno_encode(u: Tensor, poles: Tensor) -> Tensor:
    return u @ _exponentials(poles, u.shape[1])


def lno_decode(x: Tensor, poles: Tensor, *, points: int) -> Tensor:
    return x @ _exponentials(poles, points).T


def softplus(x: Tensor) -> Tensor:
    return x.relu() + ((-x.abs()).exp() + 1).log()


def reduction(name: str) -> Callable[..., Tensor]:
    def reduced(x: Tensor, *, axis: Any, keepdims: bool) -> Tensor:
        dims = [*range(x.dim())] if axis is None else [axis] if isinstance(axis, int) else [*axis]
        found: Tensor = getattr(torch, name)(x, dims, keepdims) if dims else x.clone()
        return found

    return reduced
