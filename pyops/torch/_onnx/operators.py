"""Forward passes of operators, composed of functions of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from .entries import Entries, sum_by_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._call import MaybeTensor


def aggregate(
    graph: Entries,
    x: MaybeTensor,
    edge: MaybeTensor,
    weight: MaybeTensor,
    own: MaybeTensor,
    *,
    reduce: str,
    temperature: float,
    power: float,
) -> Tensor:
    parts = [] if x is None else [x.index_select(0, graph.src)]
    parts += [] if edge is None else [graph.gather_edges(edge)]
    messages = torch.cat(parts, 1)
    if weight is not None:
        messages = messages * graph.gather_edges(weight).unsqueeze(1)
    degrees = graph.degrees(messages).unsqueeze(1)
    if reduce in ("max", "min", "amax", "amin"):
        y = graph.extreme(messages, f"a{reduce.removeprefix('a')}")
        y = torch.where(degrees > 0, y, torch.zeros_like(y))
    elif reduce == "mul":
        y = graph.product(messages)
        y = torch.where(degrees > 0, y, torch.zeros_like(y))
    elif reduce == "median":
        y = graph.median(messages)
    elif reduce == "softmax":
        y = graph.sum_incoming(graph.softmax(temperature * messages) * messages)
    elif reduce == "sum":
        y = graph.sum_incoming(messages)
    else:
        y = _of_means(graph, messages, reduce, degrees.clamp(min=1), power)
    return y if own is None else torch.cat([y, own], 1)


def _of_means(
    graph: Entries, messages: Tensor, reduce: str, counts: Tensor, power: float
) -> Tensor:
    """Return a reduction that follows from means of functions of the messages."""
    if reduce == "powermean":
        if power == 0:
            y = (graph.sum_incoming(messages.abs().log()) / counts).exp()
        else:
            y = (graph.sum_incoming(messages.pow(power)) / counts).pow(1 / power)
        return torch.where(graph.degrees(messages).unsqueeze(1) > 0, y, torch.zeros_like(y))
    mean = graph.sum_incoming(messages) / counts
    if reduce == "mean":
        return mean
    deviations = messages - mean.index_select(0, graph.dst)
    variance = graph.sum_incoming(deviations * deviations) / counts
    return variance.sqrt() if reduce == "std" else variance


def degree_normalised(graph: Entries, x: Tensor, weight: MaybeTensor) -> Tensor:
    ones = torch.ones_like(graph.src, dtype=x.dtype)
    out = sum_by_id(graph.src, graph.num_src, ones).index_select(0, graph.src)
    factors = (graph.degrees(x).index_select(0, graph.dst) * out).rsqrt()
    factors = factors if weight is None else factors * graph.gather_edges(weight)
    return graph.sum_incoming(factors.unsqueeze(1) * x.index_select(0, graph.src))


def edge_to_edge(graph: Entries, h: Tensor, *, exclude: str, reverse: MaybeTensor = None) -> Tensor:
    nodes = graph.num_src + graph.num_dst  # an upper bound that serves both sides
    into = sum_by_id(graph.dst, nodes, graph.gather_edges(h)).index_select(0, graph.src)
    ones = torch.ones_like(graph.dst, dtype=h.dtype)
    if graph.ids is not None:
        into, ones = (sum_by_id(graph.ids, graph.num_edges, terms) for terms in (into, ones))
    if exclude == "none" or reverse is None:
        return into
    images = h.index_select(0, reverse.long().clamp(min=0))
    return into - ((reverse >= 0).to(h.dtype) * ones).unsqueeze(1) * images


def edge_update(
    graph: Entries, x_src: Tensor, x_dst: MaybeTensor, edge: MaybeTensor, *, mode: str
) -> Tensor:
    parts = [] if edge is None else [graph.gather_edges(edge)]
    parts += [x_src.index_select(0, graph.src)]
    parts += [] if x_dst is None else [x_dst.index_select(0, graph.dst)]
    if mode == "concat":
        return torch.cat(parts, 1)
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


def gno_kernel(
    coords: Tensor, params: Tensor, *, hidden: int, activation: str, **widths: int
) -> Tensor:
    dim = coords.shape[1]
    first, layer = hidden * dim, hidden * (dim + 1)
    z = coords @ params[:first].view(-1, hidden) + params[first:layer]
    values: Tensor = getattr(functional, activation)(z)
    weights = params[layer:].view(hidden + 1, -1)
    return values @ weights[:-1] + weights[-1]


def gno_aggregate(graph: Entries, features: Tensor, kappa: Tensor) -> Tensor:
    matrices = graph.gather_edges(kappa).unflatten(1, (features.shape[1], -1))
    sources = features.index_select(0, graph.src).unsqueeze(1)
    return graph.sum_incoming((sources @ matrices).squeeze(1))


def gno_conv(
    graph: Entries,
    features: Tensor,
    coords: Tensor,
    params: Tensor,
    *,
    hidden: int,
    activation: str,
) -> Tensor:
    kappa = gno_kernel(coords, params, hidden=hidden, activation=activation)
    return gno_aggregate(graph, features, kappa)


def kernel_conv(
    graph: Entries,
    features: Tensor,
    hidden_layer: Tensor,
    weight: Tensor,
    bias: MaybeTensor,
    edge_weight: MaybeTensor,
    *,
    kernel: str,
    reduce: str,
) -> Tensor:
    kappa = functional.linear(hidden_layer, weight, bias)
    kappa = kappa if edge_weight is None else edge_weight.unsqueeze(1) * kappa
    if kernel == "matrix":
        y = gno_aggregate(graph, features, kappa)
    else:
        y = graph.sum_incoming(features.index_select(0, graph.src) * graph.gather_edges(kappa))
    return y / graph.degrees(y).clamp(min=1).unsqueeze(1) if reduce == "mean" else y


def hetero_basis(graph: Entries, x: Tensor, weight: Tensor) -> Tensor:
    terms = graph.gather_edges(weight).unsqueeze(2) * x.index_select(0, graph.src).unsqueeze(1)
    return graph.sum_incoming(terms).flatten(1)


def segment_softmax(graph: Entries, logits: Tensor) -> Tensor:
    return graph.softmax(graph.gather_edges(logits))


def radial_basis(distances: Tensor, frequencies: Tensor, *, exponent: int) -> Tensor:
    inside = (distances > 0) & (distances < 1)
    x = torch.where(inside, distances, torch.full_like(distances, 0.5))
    series = torch.zeros_like(x)
    for k in reversed(range(exponent + 1)):  # of (1 - x)^-3, by Horner's scheme
        series = series * x + (k + 1) * (k + 2) // 2
    rest = 1 - x
    envelope = torch.where(inside, rest * rest * rest * series / x, torch.zeros_like(x))
    return envelope.unsqueeze(1) * (distances.unsqueeze(1) * frequencies).sin()


def _exponentials(poles: Tensor, frequencies: Tensor | None, points: int) -> Tensor:
    """Return exponentials at equidistant points from 0 to 1, one row per point.

    If there are frequencies, they are multiplied by cos + sin of the angles.
    """
    positions = torch.arange(points, dtype=poles.dtype, device=poles.device)
    steps = torch.full_like(positions[:1], points - 1).clamp(min=1)
    t = (positions / steps).unsqueeze(1)
    decaying = (-t * poles).exp()
    if frequencies is None:
        return decaying
    return decaying * ((t * frequencies).cos() + (t * frequencies).sin())


def lno_encode(u: Tensor, poles: Tensor, frequencies: Tensor | None = None) -> Tensor:
    return u @ _exponentials(poles, frequencies, u.shape[1])


def lno_decode(
    x: Tensor, poles: Tensor, frequencies: Tensor | None = None, *, points: int
) -> Tensor:
    return x @ _exponentials(poles, frequencies, points).T


def softplus(x: Tensor) -> Tensor:
    return x.relu() + ((-x.abs()).exp() + 1).log()


def reduction(name: str) -> Callable[..., Tensor]:
    function: Callable[[Tensor, list[int], bool], Tensor] = getattr(torch, name)

    def reduced(x: Tensor, *, axis: int | tuple[int, ...] | None, keepdims: bool) -> Tensor:
        dims = [*range(x.dim())] if axis is None else [axis] if isinstance(axis, int) else [*axis]
        return function(x, dims, keepdims) if dims else x.clone()

    return reduced


def along(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Return a function of torch along a dimension as one along an axis."""
    return lambda x, *, axis: function(x, axis)


def where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    return torch.where(condition != 0, x1, x2)
