"""Graphs whose indices torch can trace; compiled functions take them in place of `pyops.Graph`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from .. import graph as _graph
from .._call.eager import eager
from .._call.indices import Indices
from ._call import jit_tracing, unrecorded

_MOST_GRAPHS = 64
_GLANCE = 64
_TORCH = ("torch",)
_made: WeakValueDictionary[tuple[Any, ...], Graph] = WeakValueDictionary()
_found: deque[_graph.Graph] = deque(maxlen=_MOST_GRAPHS)


class Graph(_graph.Graph):
    __doc__ = (
        (_graph.Graph.__doc__ or "").partition("\n")[0]
        + """

    A `pyops.Graph`, with the same arguments, that `torch.compile` and `torch.export` can read.
    Indices may be tensors or arrays; they are copied.
    """
    )
    __slots__ = ("__weakref__", "_tensors")
    _tensors: tuple[Tensor, Tensor, Tensor | None]

    def _fill(self, *arguments: Any) -> None:
        if jit_tracing():
            raise TypeError(
                "pyops.torch.Graph: torch.jit.trace would record its indices as constants: "
                "expected a graph made before, or layers of pyops.torch.nn, which take indices"
            )
        self._see(*arguments)

    def _see(self, *arguments: Any) -> None:
        super()._fill(*arguments)
        held = (self._src, self._dst, self._ids)
        with unrecorded():
            tensors = tuple(None if a is None else torch.from_numpy(np.array(a)) for a in held)
            _made[_key(tensors, (self._num_src, self._num_dst, self._num_edges))] = self
        object.__setattr__(self, "_tensors", tensors)


if TYPE_CHECKING:
    _Traced = _graph.Graph  # functions of pyops.torch take it as a graph
else:
    _Traced = object


@eager
def visible(graph: _graph.Graph) -> Graph:
    """Return the graph with indices as tensors that torch can trace, cached in the graph."""
    if _TORCH not in graph._ready:
        made = Graph.__new__(Graph)
        sizes = graph._num_src, graph._num_dst, graph._num_edges
        made._see("Graph", graph._src, graph._dst, graph._ids, *sizes)
        graph._ready[_TORCH] = made  # type: ignore[assignment]
    return graph._ready[_TORCH]  # type: ignore[return-value]


class Ends(_Traced):
    """Graph under tracing: index tensors and sizes, unchecked until the program runs."""

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> None:
        self._tensors = src, dst, None
        self._num_src, self._num_dst, self._num_edges = num_src, num_dst, src.shape[0]


def graph_of(tensors: tuple[Tensor | None, ...], sizes: tuple[int, ...]) -> _graph.Graph:
    """Return the graph of index tensors: their owner, or an equal graph, packed once."""
    made = _made.get(_key(tensors, sizes))
    if made is not None:
        return made
    arrays = [None if t is None else t.cpu().numpy() for t in tensors]
    for graph in list(_found)[::-1]:
        held = (graph._src, graph._dst, graph._ids)
        if sizes == (graph._num_src, graph._num_dst, graph._num_edges) and all(
            _same(one, other) for one, other in zip(arrays, held, strict=True)
        ):
            return graph
    found = _graph._restore(*arrays, *sizes)  # type: ignore[arg-type]
    _found.append(found)
    return found


def _key(tensors: tuple[Tensor | None, ...], sizes: tuple[int, ...]) -> tuple[Any, ...]:
    return *(None if t is None else (t.data_ptr(), len(t)) for t in tensors), *sizes


def _same(one: Indices | None, other: Indices | None) -> bool:
    if one is None or other is None:
        return one is other
    if len(one) != len(other) or not np.array_equal(one[:_GLANCE], other[:_GLANCE]):
        return False
    return np.array_equal(one, other)
