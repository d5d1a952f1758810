"""Arrays that differ between the devices of a `jax.shard_map`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


def alike(arrays: Sequence[Any]) -> Sequence[Any]:
    """The arrays, each varying over all axes of the mesh that any of them varies over.

    Gradients of an array that is the same on all devices are summed over these by this step.
    """
    axes = [_varying(a) for a in arrays]
    every: frozenset[Any] = frozenset().union(*axes)
    return [
        jax.lax.pcast(a, tuple(every - some), to="varying") if every - some else a
        for a, some in zip(arrays, axes, strict=True)
    ]


def _varying(array: Any) -> frozenset[Any]:
    kind = jax.typeof(array)
    axes: frozenset[Any]
    axes = kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying  # JAX 0.9, 0.10
    return axes
