"""Graphs whose index arrays are visible to JAX, as arguments of compiled functions."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from .. import graph as _graph
from .._call.arrays import kind_of
from .._call.indices import Indices, check_bounds

SIZES = "num_src", "num_dst", "num_edges"
_JAX = ("jax",)
IndexArrays: TypeAlias = "tuple[jax.Array, ...]"
"""src, dst and, if ids are shared, edge ids."""
AnyArray: TypeAlias = "jax.Array | npt.NDArray[np.generic]"
Given = TypeVar("Given")


@jax.tree_util.register_pytree_node_class
class Graph:
    """A `pyops.Graph` as a pytree: functions under `jax.jit` may take it as an argument.

    Graphs of equal sizes share compiled code. A `pyops.Graph` also works if it is not an argument;
    it is then a constant of the compiled function.

    Parameters
    ----------
    src, dst, num_src, num_dst
        As for `pyops.Graph`, which checks them; or one `pyops.Graph`.
    """

    def __init__(
        self,
        src: npt.ArrayLike | jax.Array | _graph.Graph,
        dst: npt.ArrayLike | jax.Array | None = None,
        *sizes: int,
        **named: int,
    ) -> None:
        if isinstance(src, _graph.Graph) and dst is None and not sizes and not named:
            graph = src
        else:
            ends: list[Any] = [on_host(src), on_host(dst)]
            graph = _graph.Graph(*ends, *sizes, **named)
        self.indices: IndexArrays = indices_of(graph, "pyops.jax.Graph")
        self.sizes: tuple[int, ...] = sizes_of(graph)

    def __repr__(self) -> str:
        num_src, num_dst, num_edges = self.sizes
        return f"Graph(num_src={num_src}, num_dst={num_dst}, num_edges={num_edges})"

    def tree_flatten(self) -> tuple[IndexArrays, tuple[int, ...]]:
        return self.indices, self.sizes

    @classmethod
    def tree_unflatten(cls, sizes: tuple[int, ...], indices: IndexArrays) -> Graph:
        graph = object.__new__(cls)
        graph.indices, graph.sizes = indices, sizes
        return graph


def on_host(indices: Given) -> Given | Indices:
    """Copy the indices to the host for checks by NumPy, if JAX holds them on another device."""
    if not isinstance(indices, jax.Array) or isinstance(indices, jax.core.Tracer):
        return indices
    copied = any(device.platform != "cpu" for device in indices.devices())
    return np.asarray(indices) if copied else indices


def as_int32(label: str, indices: Indices) -> npt.NDArray[np.int32]:
    """Convert checked indices to int32, which JAX supports without jax_enable_x64."""
    check_bounds(label, indices, 2**31, "2**31", least=-1)
    return indices.astype(np.int32)


def arrays_of(graph: _graph.Graph, label: str) -> tuple[Indices, ...]:
    """Return the arrays that define a graph: src, dst and, if ids are shared, edge ids."""
    if graph._ids is None:
        return graph._src, graph._dst
    return graph._src, graph._dst, as_int32(f"{label}: edge_ids", graph._ids)


def indices_of(graph: _graph.Graph, label: str) -> IndexArrays:
    """Return these as JAX arrays, cached with the graph; never tracers."""
    found: IndexArrays | None = graph._copies.get(_JAX)
    if found is None:
        arrays = arrays_of(graph, label)
        with jax.core.eval_context():
            found = graph._copies[_JAX] = tuple(map(jax.numpy.asarray, arrays))
    return found


def host_indices(indices: IndexArrays) -> tuple[Indices, Indices, Indices | None] | None:
    """Return the index arrays in host memory, None while JAX traces them."""
    if any(isinstance(array, jax.core.Tracer) for array in indices):
        return None
    src, dst, *ids = map(np.asarray, indices)
    return src, dst, ids[0] if ids else None


def check_known(label: str, array: AnyArray) -> None:
    """Refuse an array of unknown shape; dimensions may be symbolic under `jax.export`."""
    if not all(isinstance(length, int) for length in array.shape):
        raise ValueError(f"{label}: expected sizes that are known, got {array.shape}")


def check_index(label: str, array: object) -> None:
    """Refuse anything but an array of int32 or int64 of a known shape."""
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(f"{label}: expected a jax.Array, got {kind_of(array)}")
    check_known(label, array)
    if array.dtype not in (np.dtype("int32"), np.dtype("int64")):
        raise TypeError(f"{label}: expected int32 or int64, got {array.dtype}")


def check_leaves(label: str, indices: IndexArrays, sizes: tuple[int, ...]) -> IndexArrays:
    """Return the index arrays of a pytree after checks: the caller may have replaced the leaves."""
    named = dict(zip(("src", "dst", "edge_ids"), indices, strict=False))
    for name, array in named.items():
        check_index(f"{label}: {name}", array)
    num_edges = indices[0].shape if len(indices) > 2 else (sizes[2],)
    for name, array in named.items():
        if array.shape != num_edges or array.ndim != 1:
            raise ValueError(f"{label}: {name}: expected shape {num_edges}, got {array.shape}")
    return indices


def sizes_of(graph: _graph.Graph) -> tuple[int, ...]:
    return graph.num_src, graph.num_dst, graph.num_edges
