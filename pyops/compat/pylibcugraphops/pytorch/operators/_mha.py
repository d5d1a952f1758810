from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .....torch import gat, gat_v2, transformer_conv
from ...operators._bias import query_scales
from ...operators._scores import ACTIVATIONS, check_activation
from ._nodes import Feat, both_ends, check_flags, check_graph, check_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._csc import CSC

UNUSED = (
    "deterministic_dgrad",
    "deterministic_wgrad",
    "high_precision_dgrad",
    "high_precision_wgrad",
)
"""Flags that are accepted but unused."""


def mha_gat_n2n(
    feat: Tensor | tuple[Tensor, Tensor],
    attn_weights: Tensor,
    graph: CSC,
    num_heads: int = 1,
    activation: str = "LeakyReLU",
    negative_slope: float = 0.2,
    concat_heads: bool = True,
    edge_feat: Tensor | None = None,
    deterministic_dgrad: bool = False,
    deterministic_wgrad: bool = False,
    high_precision_dgrad: bool = False,
    high_precision_wgrad: bool = False,
) -> Tensor:
    """Graph attention, see `pyops.gat`.

    Parameters
    ----------
    feat : tensor, shape (num_src_nodes, num_heads * dim), or a pair of tensors
        Transformed features, heads side by side.
    attn_weights : tensor, shape (num_heads * (2 * dim + dim_edge),)
        Weights of sources, destinations and edges, each in head-major order.
    graph : CSC
    num_heads : int
    activation : {"LeakyReLU", "Identity", "ReLU", "Sigmoid", "Tanh", "ELU"}
    negative_slope : float
    concat_heads : bool
        Whether the heads of the result are concatenated; otherwise they are averaged.
    edge_feat : tensor, shape (num_edges, num_heads * dim_edge), optional
    deterministic_dgrad, deterministic_wgrad, high_precision_dgrad, high_precision_wgrad : bool
        Accepted but unused: gradients are deterministic, in the precision of the features.

    Returns
    -------
    tensor, shape (num_dst_nodes, num_heads * dim) or (num_dst_nodes, dim)
    """
    flags = deterministic_dgrad, deterministic_wgrad, high_precision_dgrad, high_precision_wgrad
    options = num_heads, concat_heads, activation, negative_slope
    return _additive("mha_gat_n2n", gat, feat, attn_weights, graph, edge_feat, options, flags)


def mha_gat_v2_n2n(
    feat: Tensor | tuple[Tensor, Tensor],
    attn_weights: Tensor,
    graph: CSC,
    num_heads: int = 1,
    activation: str = "LeakyReLU",
    negative_slope: float = 0.2,
    concat_heads: bool = True,
    edge_feat: Tensor | None = None,
    deterministic_dgrad: bool | None = False,
    deterministic_wgrad: bool | None = False,
    high_precision_dgrad: bool = False,
    high_precision_wgrad: bool = False,
) -> Tensor:
    """Graph attention with activated sums, see `pyops.gat_v2`.

    Parameters are those of `mha_gat_n2n`, except `attn_weights`, shape (num_heads * dim,), and
    `edge_feat`, shape (num_edges, num_heads * dim).
    """
    unset = [False if f is None else f for f in (deterministic_dgrad, deterministic_wgrad)]
    flags = *unset, high_precision_dgrad, high_precision_wgrad
    options = num_heads, concat_heads, activation, negative_slope
    return _additive("mha_gat_v2_n2n", gat_v2, feat, attn_weights, graph, edge_feat, options, flags)


def mha_simple_n2n(
    key_emb: Tensor,
    query_emb: Tensor,
    value_emb: Tensor,
    graph: CSC,
    num_heads: int = 1,
    concat_heads: bool = True,
    edge_emb: Tensor | None = None,
    norm_by_dim: bool = True,
    score_bias: Tensor | None = None,
) -> Tensor:
    """Dot-product attention, see `pyops.transformer_conv`.

    Parameters
    ----------
    key_emb, value_emb : tensor, shape (num_src_nodes, num_heads * dim)
        Keys and values of the sources, heads side by side.
    query_emb : tensor, shape (num_dst_nodes, num_heads * dim)
        Queries of the destinations. For a graph that is not bipartite they may have rows for
        all sources, of which the first are used.
    graph : CSC
    num_heads : int
    concat_heads : bool
        Whether the heads of the result are concatenated; otherwise they are averaged.
    edge_emb : tensor, shape (num_edges, num_heads * dim), optional
        Added to keys and values.
    norm_by_dim : bool
        Whether the scores are divided by the root of dim.
    score_bias : tensor, shape (num_edges, num_heads), optional
        Added before the softmax to the scores, which are divided by the root of dim or not.
        Costs an additional column of each head, and rows of edge features.

    Returns
    -------
    tensor, shape (num_dst_nodes, num_heads * dim) or (num_dst_nodes, dim)
    """
    caller = "mha_simple_n2n"
    check_graph(caller, graph)
    check_flags(caller, concat_heads=concat_heads, norm_by_dim=norm_by_dim)
    for name, tensor in {
        "key_emb": key_emb,
        "query_emb": query_emb,
        "value_emb": value_emb,
    }.items():
        check_tensor(f"{caller}: {name}", tensor)
    if not graph.is_bipartite and len(query_emb) == graph.num_src_nodes:
        query_emb = query_emb[: graph.num_dst_nodes]
    if not norm_by_dim:
        query_emb = query_emb * (query_emb.shape[-1] / num_heads) ** 0.5
    concat = bool(concat_heads)
    inputs = query_emb, key_emb, value_emb, edge_emb
    if score_bias is None:
        return transformer_conv(graph.graph, *inputs, heads=num_heads, concat=concat)
    rows = graph.graph.num_edges
    if not isinstance(score_bias, Tensor) or score_bias.dtype != key_emb.dtype:
        got = score_bias.dtype if isinstance(score_bias, Tensor) else type(score_bias).__name__
        raise TypeError(f"{caller}: score_bias: expected {key_emb.dtype} like key_emb, got {got}")
    if tuple(score_bias.shape) != (rows, num_heads):
        raise ValueError(
            f"{caller}: score_bias: expected shape ({rows}, {num_heads}), "
            f"got {tuple(score_bias.shape)}"
        )
    biased = _with_bias(*inputs, num_heads, score_bias)
    y = transformer_conv(graph.graph, *biased, heads=num_heads, concat=concat)
    by_heads: Tensor = y.unflatten(1, (num_heads if concat_heads else 1, -1))
    return by_heads[:, :, :-1].flatten(1)


def _with_bias(
    query: Tensor, key: Tensor, value: Tensor, edge: Tensor | None, heads: int, bias: Tensor
) -> list[Tensor]:
    """Return inputs with an additional column of each head, which adds the bias to the scores."""
    if edge is None:
        edge = key.new_zeros(len(bias), key.shape[1])
    scale, last = query_scales(query.shape[1] // heads)
    columns = (query * scale, last), (key, 0.0), (value, 0.0)
    wide = [
        torch.cat([x.unflatten(1, (heads, -1)), x.new_full((len(x), heads, 1), column)], dim=2)
        for x, column in columns
    ]
    wide.append(torch.cat([edge.unflatten(1, (heads, -1)), bias[:, :, None]], dim=2))
    return [x.flatten(1) for x in wide]


def _additive(
    caller: str,
    op: Callable[..., Tensor],
    feat: Feat,
    attn_weights: Tensor,
    graph: CSC,
    edge_feat: Tensor | None,
    options: tuple[int, bool, str, float],
    flags: Sequence[bool],
) -> Tensor:
    check_flags(caller, **dict(zip(UNUSED, flags, strict=True)))
    src, dst = both_ends(caller, feat, graph)
    heads, concat, activation, slope = options
    check_activation(f"{caller}: activation", activation)
    check_flags(caller, concat_heads=concat)
    chosen = {"heads": heads, "concat": bool(concat), "activation": ACTIVATIONS[activation][0]}
    return op(graph.graph, src, dst, attn_weights, edge_feat, negative_slope=slope, **chosen)
