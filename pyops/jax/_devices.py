"""Arrays that differ between devices: those of a `jax.shard_map`, and sharded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from jax.sharding import NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def with_common_axes(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Return the arrays, each varying over all mesh axes that any of them varies over.

    The transpose of this step sums the gradients of replicated arrays over the devices.
    """
    axes = [varying_axes(a) for a in arrays]
    every: frozenset[Hashable] = frozenset().union(*axes)
    return [
        jax.lax.pcast(a, tuple(every - some), to="varying") if every - some else a
        for a, some in zip(arrays, axes, strict=True)
    ]


def unsharded(batch: jax.Array) -> jax.Array:
    """Reshard a batch to have all its elements on each device, as `jax.lax.map` loops over it."""
    sharding = jax.typeof(batch).sharding
    if sharding.spec[0] is None:
        return batch
    whole = PartitionSpec(None, *sharding.spec[1:])
    gathered: jax.Array = jax.reshard(batch, NamedSharding(sharding.mesh, whole))
    return gathered


def varying_axes(array: jax.Array) -> frozenset[Hashable]:
    """Return the mesh axes over which an array inside `jax.shard_map` differs."""
    kind = jax.typeof(array)
    axes: frozenset[Hashable]
    axes = kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying  # JAX 0.9, 0.10
    return axes


def rank_inside(label: str, axis: str, what: str = "") -> jax.Array:
    """Return the number of the device along a mesh axis; refuse calls outside `jax.shard_map`.

    `what` says in a message what the axis is for.
    """
    try:
        return jax.lax.axis_index(axis)
    except NameError:
        raise ValueError(
            f"{label}: expected a call inside jax.shard_map over the mesh axis "
            f"{axis!r}, {what}got one outside"
        ) from None


def check_varying(label: str, axis: str, array: jax.Array) -> None:
    """Refuse a `jax.shard_map` in which JAX does not know which arrays differ."""
    if axis not in varying_axes(array):
        raise ValueError(
            f"{label}: expected jax.shard_map with check_vma=True, got False: "
            "derivatives inside would lack sums over devices"
        )
