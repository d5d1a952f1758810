"""Attention scores before the softmax, which the operators themselves do not store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...._call.operator import Operator
    from ...._call.types import Array
    from .._queue import AnyGraph
    from ._mha import mha_params

ACTIVATIONS: dict[str, tuple[str, Callable[[Array, np.floating], Array]]] = {
    "LeakyReLU": ("leaky_relu", lambda z, slope: np.where(z > 0, z, slope * z)),
    "Identity": ("identity", lambda z, _: z),
    "ReLU": ("relu", lambda z, _: np.maximum(z, 0)),
    "Sigmoid": ("sigmoid", lambda z, _: (1 + np.tanh(z / 2)) / 2),
    "Tanh": ("tanh", lambda z, _: np.tanh(z)),
    "ELU": ("elu", lambda z, _: np.where(z > 0, z, np.expm1(np.minimum(z, 0)))),
}
"""Activation names there, those of the operators here, and the functions."""
TOGETHER = 1 << 16
"""Entries per block of gathered rows."""


def check_activation(label: str, name: object) -> None:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        kind = ValueError if isinstance(name, str) else TypeError
        raise kind(f"{label}: expected one of {', '.join(ACTIVATIONS)}, got {name!r}")


def logits_of(
    op: Operator, graph: AnyGraph, inputs: Sequence[Any], params: mha_params, sums: Array | None
) -> Array:
    """Return all entries' scores [n_indices, num_heads]; `sums` receives what gat_v2 activates."""
    heads = params.num_heads
    dtype = inputs[0].dtype.newbyteorder("=")
    logits: Array = np.empty_like(inputs[0], dtype, shape=(graph.num_entries, heads))
    ends: Any = graph
    src, dst, ids = ends.src, ends.dst, ends.edge_ids

    def by_heads(x: Array) -> Array:
        return x.reshape(len(x), heads, -1) if len(x) else x.reshape(0, heads, x.shape[1] // heads)

    def activate(z: Array) -> Array:
        result: Array = ACTIVATIONS[params.activation][1](z, dtype.type(params.negative_slope))
        return result

    for first in range(0, graph.num_entries, TOGETHER):
        some = slice(first, first + TOGETHER)
        j, i, e = src[some], dst[some], ids[some]
        if op.name == "transformer_conv":
            query, key, _, edge, _ = inputs
            rows = by_heads(key[j]) if edge is None else by_heads(key[j] + edge[e])
            scale = dtype.type(rows.shape[2] ** -0.5)
            logits[some] = (by_heads(query[i]) * rows).sum(2) * scale
            continue
        x_src, x_dst, attention, edge, _ = inputs
        if op.name == "gat":
            wide = x_src.shape[1]
            parts = [(x_src, j, attention[:wide]), (x_dst, i, attention[wide : 2 * wide])]
            if edge is not None:
                parts.append((edge, e, attention[2 * wide :]))
            logits[some] = activate(
                sum((by_heads(x[k]) * a.reshape(heads, -1)).sum(2) for x, k, a in parts)
            )
            continue
        rows = x_src[j] + x_dst[i]
        rows = activate(rows if edge is None else rows + edge[e])
        if sums is not None:
            sums[some] = rows
        logits[some] = (by_heads(rows) * attention.reshape(heads, -1)).sum(2)
    return logits
