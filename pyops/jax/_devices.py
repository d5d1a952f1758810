"""Arrays that differ between devices: those of a `jax.shard_map`, and batches in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec


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


def together(batch: Any) -> Any:
    """A batch whose elements are on all devices, which `jax.lax.map` takes one after another."""
    sharding = jax.typeof(batch).sharding
    if sharding.spec[0] is None:
        return batch
    whole = PartitionSpec(None, *sharding.spec[1:])
    return jax.reshard(batch, NamedSharding(sharding.mesh, whole))


def _varying(array: Any) -> frozenset[Any]:
    kind = jax.typeof(array)
    axes: frozenset[Any]
    axes = kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying  # JAX 0.9, 0.10
    return axes
