"""Bias of attention scores, as an additional column of each head.

In that column queries have a constant, edge features the bias, keys and values 0. The product of
query and key then includes the bias; the column of the result is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...._call.types import Array


def widened(x: Array, heads: int, column: Array | float) -> Array:
    """Append an element to each head of each row: a number, or [rows, heads]."""
    rows, width = len(x), x.shape[1] // heads
    last = np.empty_like(x, shape=(rows, heads, 1))
    last[...] = column if isinstance(column, float) else column.reshape(rows, heads, 1)
    wide = np.concatenate([x.reshape(rows, heads, width), last], axis=2)
    result: Array = wide.reshape(rows, heads * (width + 1))
    return result


def narrowed(x: Array, heads: int) -> tuple[Array, Array]:
    """Return rows without the last element of each head, and these elements, [rows, heads]."""
    wide = x.reshape(len(x), heads, x.shape[1] // heads)
    return wide[:, :, :-1].reshape(len(x), x.shape[1] - heads), wide[:, :, -1]


def with_bias(inputs: list[Array | None], heads: int, bias: Array) -> list[Array | None]:
    """Return inputs of `pyops.transformer_conv` that add a bias [edges, heads] to the scores."""
    query, key, value, edge, mask = inputs
    assert query is not None
    assert key is not None
    assert value is not None
    if edge is None:
        edge = np.zeros_like(key, shape=(len(bias), key.shape[1]))
    scale, last = query_scales(query.shape[1] // heads)
    query = widened(query * query.dtype.type(scale), heads, last)
    return [query, widened(key, heads, 0.0), widened(value, heads, 0.0),
            widened(edge, heads, bias), mask]  # fmt: skip


def query_scales(width: int) -> tuple[float, float]:
    """Return the factor of queries, and their last element: the wider head changes the scaling."""
    return ((width + 1) / width) ** 0.5, (width + 1) ** 0.5
