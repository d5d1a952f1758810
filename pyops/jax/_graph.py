"""Graphs whose index arrays are visible to JAX, as arguments of compiled functions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .. import graph as _graph
from .._call.arrays import kind_of
from .._call.indices import check_bounds

SIZES = "num_src", "num_dst", "num_edges"
_JAX = ("jax",)


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

    def __init__(self, src: Any, dst: Any = None, *sizes: Any, **named: Any) -> None:
        whole = isinstance(src, _graph.Graph) and dst is None and not sizes and not named
        graph = src if whole else _graph.Graph(on_host(src), on_host(dst), *sizes, **named)
        self.indices: tuple[Any, ...] = indices_of(graph, "pyops.jax.Graph")
        self.sizes: tuple[int, ...] = sizes_of(graph)

    def __repr__(self) -> str:
        num_src, num_dst, num_edges = self.sizes
        return f"Graph(num_src={num_src}, num_dst={num_dst}, num_edges={num_edges})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        return self.indices, self.sizes

    @classmethod
    def tree_unflatten(cls, sizes: tuple[int, ...], indices: tuple[Any, ...]) -> Graph:
        graph = object.__new__(cls)
        graph.indices, graph.sizes = indices, sizes
        return graph


def on_host(indices: Any) -> Any:
    """Copy the indices to the host for checks by NumPy, if JAX holds them on another device."""
    if not isinstance(indices, jax.Array) or isinstance(indices, jax.core.Tracer):
        return indices
    there = any(device.platform != "cpu" for device in indices.devices())
    return np.asarray(indices) if there else indices


def narrowed(label: str, indices: Any) -> Any:
    """Convert checked indices to int32, which JAX supports without jax_enable_x64."""
    check_bounds(label, indices, 2**31, "2**31", least=-1)
    return indices.astype(np.int32)


def arrays_of(graph: _graph.Graph, label: str) -> tuple[Any, ...]:
    """Return the arrays that define a graph: src, dst and, if ids are shared, edge ids."""
    if graph._ids is None:
        return graph._src, graph._dst
    return graph._src, graph._dst, narrowed(f"{label}: edge_ids", graph._ids)


def indices_of(graph: _graph.Graph, label: str) -> tuple[Any, ...]:
    """Return these as JAX arrays, cached with the graph; never tracers."""
    if _JAX not in graph._ready:
        arrays = arrays_of(graph, label)
        with jax.core.eval_context():
            graph._ready[_JAX] = tuple(map(jax.numpy.asarray, arrays))
    return graph._ready[_JAX]


def ends_of(indices: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
    """Return the index arrays in host memory, None while JAX traces them."""
    if any(isinstance(array, jax.core.Tracer) for array in indices):
        return None
    src, dst, *ids = map(np.asarray, indices)
    return src, dst, ids[0] if ids else None


def check_known(label: str, array: Any) -> Any:
    """Return the array if its shape is known; dimensions may be symbolic under `jax.export`."""
    if not all(isinstance(length, int) for length in array.shape):
        raise ValueError(f"{label}: expected sizes that are known, got {array.shape}")
    return array


def check_index(label: str, array: Any) -> None:
    """Refuse anything but an array of int32 or int64 of a known shape."""
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(f"{label}: expected a jax.Array, got {kind_of(array)}")
    if check_known(label, array).dtype not in (np.dtype("int32"), np.dtype("int64")):
        raise TypeError(f"{label}: expected int32 or int64, got {array.dtype}")


def check_leaves(label: str, indices: tuple[Any, ...], sizes: tuple[int, ...]) -> tuple[Any, ...]:
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
