"""Rows of arrays on a distributed graph: exchanged between devices, masked, checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def exchanged(own: Sequence[jax.Array], send: jax.Array, axis: str) -> list[jax.Array]:
    """Append a row of zeros and the rows of other devices to arrays, in one message."""
    extended = [with_zeros(array) for array in own]
    if not own:
        return []
    parts = [array.at[send].get(mode="promise_in_bounds") for array in extended]
    flat = [part.reshape(*send.shape, math.prod(part.shape[2:])) for part in parts]
    ends = np.cumsum([part.shape[2] for part in flat])
    received = jax.lax.all_to_all(jnp.concatenate(flat, 2), axis, 0, 0)
    found = jnp.split(received, ends[:-1].tolist(), 2)
    return [
        jnp.concatenate([array, rows.reshape(send.size, *array.shape[1:])])
        for array, rows in zip(extended, found, strict=True)
    ]


def accumulated(full: jax.Array, send: jax.Array, owned: int, axis: str) -> jax.Array:
    """Return the first rows, with those from other devices that belong to them: the transpose."""
    own = full[:owned]
    rows = full[owned + 1 :].reshape(*send.shape, *full.shape[1:])
    return own.at[send].add(jax.lax.all_to_all(rows, axis, 0, 0), mode="drop")


def with_zeros(array: jax.Array) -> jax.Array:
    return jnp.concatenate([array, jnp.zeros_like(array, shape=(1, *array.shape[1:]))])


def masked(array: jax.Array, mask: jax.Array) -> jax.Array:
    """Return zeros in place of rows that are padding, whose derivatives are then zero too."""
    return jnp.where(mask.reshape(-1, *[1] * (array.ndim - 1)), array, 0)


def check_length(label: str, array: jax.Array, name: str, length: int) -> None:
    if array.ndim == 0 or array.shape[0] != length:
        got = f"{array.shape[0]} rows" if array.ndim else "a scalar"
        raise ValueError(f"{label}: expected {name}={length} rows of a device, got {got}")
