"""Graphs whose indices JAX can see, as arguments of compiled functions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .. import graph as _graph

_JAX = ("jax",)


@jax.tree_util.register_pytree_node_class
class Graph:
    """A `pyops.Graph` that is a pytree: functions under `jax.jit` may take it as an argument.

    Graphs of equal sizes share what was compiled. A `pyops.Graph` serves as well where it is not
    an argument; it is then a constant of what is compiled.

    Parameters
    ----------
    src, dst, num_src, num_dst
        As for `pyops.Graph`, which checks them; or one `pyops.Graph`.
    """

    def __init__(self, src: Any, dst: Any = None, *sizes: Any, **named: Any) -> None:
        whole = isinstance(src, _graph.Graph) and dst is None and not sizes and not named
        graph = src if whole else _graph.Graph(_host(src), _host(dst), *sizes, **named)
        self.indices: tuple[Any, ...] = indices_of(graph)
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


def _host(indices: Any) -> Any:
    """The indices, for `pyops.Graph` to check, from the device that JAX holds them on."""
    return np.asarray(indices) if isinstance(indices, jax.Array) else indices


def arrays_of(graph: _graph.Graph) -> tuple[Any, ...]:
    """src, dst and, where entries share rows, edge ids, which is what tells a graph."""
    if graph._ids is None:
        return graph._src, graph._dst
    return graph._src, graph._dst, np.asarray(graph._ids, np.int32)


def indices_of(graph: _graph.Graph) -> tuple[Any, ...]:
    """The same as arrays of JAX, made once and kept with the graph, never those of a trace."""
    if _JAX not in graph._ready:
        with jax.core.eval_context():
            graph._ready[_JAX] = tuple(jax.numpy.asarray(a) for a in arrays_of(graph))
    return graph._ready[_JAX]


def check_known(label: str, array: Any) -> Any:
    """The array, if its shape is known; the dimensions of `jax.export` may be symbols."""
    if not all(isinstance(length, int) for length in array.shape):
        raise ValueError(f"{label}: expected sizes that are known, got {array.shape}")
    return array


def check_leaves(label: str, indices: tuple[Any, ...], sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The index arrays of a pytree, whose leaves may have been made anew by the caller."""
    num_edges = indices[0].shape if len(indices) > 2 else (sizes[2],)
    for name, array in zip(("src", "dst", "edge_ids"), indices, strict=False):
        kind = check_known(f"{label}: {name}", array).dtype
        if kind not in (np.dtype("int32"), np.dtype("int64")):
            raise TypeError(f"{label}: {name}: expected int32 or int64, got {kind}")
        if array.shape != num_edges or array.ndim != 1:
            raise ValueError(f"{label}: {name}: expected shape {num_edges}, got {array.shape}")
    return indices


def sizes_of(graph: _graph.Graph) -> tuple[int, ...]:
    return graph.num_src, graph.num_dst, graph.num_edges
