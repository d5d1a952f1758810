"""A bias of attention scores, as one more column of each head.

Queries have a constant there, edge features the bias, keys and values 0, so that the product of
query and key is larger by the bias; the column of the result is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...._arrays import Array


def widened(x: Array, heads: int, column: Any) -> Array:
    """Rows with one more element in each head: a number, or [rows, heads]."""
    rows, width = len(x), x.shape[1] // heads
    last = np.empty_like(x, shape=(rows, heads, 1))
    last[...] = column if np.isscalar(column) else column.reshape(rows, heads, 1)
    wide = np.concatenate([x.reshape(rows, heads, width), last], axis=2)
    result: Array = wide.reshape(rows, heads * (width + 1))
    return result


def narrowed(x: Array, heads: int) -> tuple[Array, Array]:
    """Rows without the last element of each head, and these elements, [rows, heads]."""
    wide = x.reshape(len(x), heads, x.shape[1] // heads)
    return wide[:, :, :-1].reshape(len(x), x.shape[1] - heads), wide[:, :, -1]


def with_bias(inputs: list[Any], heads: int, bias: Array) -> list[Any]:
    """The inputs of `pyops.transformer_conv` whose scores are larger by a bias, [edges, heads]."""
    query, key, value, edge, mask = inputs
    if edge is None:
        edge = np.zeros_like(key, shape=(len(bias), key.shape[1]))
    scale, last = query_scales(query.shape[1] // heads)
    query = widened(query * query.dtype.type(scale), heads, last)
    return [query, widened(key, heads, 0.0), widened(value, heads, 0.0),
            widened(edge, heads, bias), mask]  # fmt: skip


def query_scales(width: int) -> tuple[float, float]:
    """The factor of queries, and their last element: scores are divided by a larger width."""
    return ((width + 1) / width) ** 0.5, (width + 1) ** 0.5
