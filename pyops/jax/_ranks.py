"""Devices along an axis of a mesh, each a rank, and what the processes that hold them agree on."""

from __future__ import annotations

import builtins
import functools
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..distributed._mpi import Values

Found = TypeVar("Found")
Blocks: TypeAlias = "Mapping[int, Values]"
"""An array for each rank of this process, of equal shapes on all ranks, not without rows."""
_TEXT = 1024
"""Bytes of an error message that all processes receive."""


class Ranks:
    """The devices along an axis of a mesh. Methods are collective over their processes."""

    def __init__(self, mesh: Mesh, axis: str) -> None:
        self.mesh, self.axis = mesh, axis
        self.size = int(mesh.shape[axis])
        self.sharding = NamedSharding(mesh, PartitionSpec(axis))
        place = mesh.axis_names.index(axis)
        groups = np.moveaxis(mesh.devices, place, 0).reshape(self.size, -1)
        self.processes = [sorted({d.process_index for d in group}) for group in groups]
        """Processes that hold the devices of each rank."""
        me = jax.process_index()
        self.own = [r for r, some in enumerate(self.processes) if me in some]
        """Ranks of this process."""
        self._alone = all(some == [me] for some in self.processes)

    def spread(self, blocks: Blocks) -> jax.Array:
        """Return the blocks of all ranks as one array, one after another along the first axis."""
        some = next(iter(blocks.values()))
        shape = (self.size * len(some), *some.shape[1:])

        def block(index: tuple[slice, ...] | None) -> Values:
            assert index is not None
            return blocks[(index[0].start or 0) // len(some)]

        dtype = jax.dtypes.canonicalize_dtype(some.dtype)
        return jax.make_array_from_callback(shape, self.sharding, block, dtype=dtype)

    def blocks(self, array: jax.Array) -> Blocks:
        """Return the blocks of this process of such an array."""
        length = array.shape[0] // self.size
        return {
            (shard.index[0].start or 0) // length: np.asarray(shard.data)
            for shard in array.addressable_shards
        }

    def mapped(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """Return the results of a function that each rank calls with its own blocks."""
        spec = PartitionSpec(self.axis)
        shared = jax.shard_map(function, mesh=self.mesh, in_specs=spec, out_specs=spec)
        return jax.jit(shared)(*arrays)

    def gather(self, blocks: Blocks) -> Values:
        """Return the arrays of all ranks, stacked."""
        if self._alone:
            return np.stack([blocks[r] for r in self.own])
        array = self.spread({r: block[None] for r, block in blocks.items()})
        return np.asarray(_replicated(self.mesh)(array).addressable_data(0))

    def together(self, function: Callable[[], Found]) -> Found:
        """Return the result of a function; an exception on one process is raised on all."""
        if self._alone:
            return function()
        failure, text = None, ""
        try:
            found = function()
        except Exception as error:
            failure, text = error, f"{type(error).__name__}: {error}"
        encoded = text.encode()[:_TEXT]
        message = np.zeros(_TEXT, np.uint8)
        message[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        for rank, row in enumerate(self.gather(dict.fromkeys(self.own, message))):
            kind, _, said = bytes(row).rstrip(b"\0").decode(errors="ignore").partition(": ")
            if kind:
                known = getattr(builtins, kind, RuntimeError)
                raised = known if issubclass(known, Exception) else RuntimeError
                raise raised(f"process {self.processes[rank][0]}: {said}") from failure
        return found


@functools.cache
def _replicated(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    """Return a compiled function that returns an array to all devices."""
    whole = NamedSharding(mesh, PartitionSpec())
    function: Callable[[jax.Array], jax.Array] = jax.jit(lambda a: a, out_shardings=whole)
    return function
