"""Graphs whose indices torch can trace; compiled functions take them in place of `pyops.Graph`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from .. import graph as _graph
from .._call.eager import eager
from ._call import is_jit_tracing, without_tracing

if TYPE_CHECKING:
    from .._call.indices import Indices

_MOST_GRAPHS = 64
_PREFIX = 64
"""Number of indices that are compared first."""
_TORCH = ("torch",)
_with_tensors: WeakValueDictionary[Key, Graph] = WeakValueDictionary()
"""Graphs by the memory of their index tensors."""
_packed: deque[_graph.Graph] = deque(maxlen=_MOST_GRAPHS)
"""Graphs packed for other index tensors, newest last."""
IndexTensors: TypeAlias = "tuple[Tensor, Tensor, Tensor | None]"
Key: TypeAlias = "tuple[tuple[int, int] | int | None, ...]"


class Graph(_graph.Graph):
    __doc__ = (
        (_graph.Graph.__doc__ or "").partition("\n")[0]
        + """

    A `pyops.Graph`, with the same arguments, that `torch.compile` and `torch.export` can read.
    Indices may be tensors or arrays; they are copied. The class methods `from_edge_index`,
    `from_csc`, `from_cells` and `from_scipy` make one, as those of `pyops.Graph` do.
    """
    )
    __slots__ = ("__weakref__", "_tensors")
    _tensors: IndexTensors

    def _fill(
        self,
        caller: str,
        src: Indices,
        dst: Indices,
        ids: Indices | None,
        num_src: int,
        num_dst: int,
        num_edges: int,
    ) -> None:
        if is_jit_tracing():
            raise TypeError(
                "pyops.torch.Graph: torch.jit.trace would record its indices as constants: "
                "expected a graph made before, or layers of pyops.torch.nn, which take indices"
            )
        super()._fill(caller, src, dst, ids, num_src, num_dst, num_edges)
        self._add_tensors()

    def _add_tensors(self) -> None:
        ids = self._ids
        with without_tracing():
            src, dst = (torch.from_numpy(np.array(a)) for a in (self._src, self._dst))
            tensors = src, dst, None if ids is None else torch.from_numpy(np.array(ids))
            _with_tensors[_key(tensors, (self._num_src, self._num_dst, self._num_edges))] = self
        object.__setattr__(self, "_tensors", tensors)


if TYPE_CHECKING:
    _Graph = _graph.Graph  # functions of pyops.torch take it as a graph
else:
    _Graph = object


@eager
def traceable(graph: _graph.Graph) -> Graph:
    """Return the graph with indices as tensors that torch can trace, cached in the graph."""
    if isinstance(graph, Graph):
        return graph
    found: Graph | None = graph._copies.get(_TORCH)
    if found is None:
        found = Graph.__new__(Graph)
        sizes = graph._num_src, graph._num_dst, graph._num_edges
        _graph.Graph._fill(found, "Graph", graph._src, graph._dst, graph._ids, *sizes)
        found._add_tensors()
        graph._copies[_TORCH] = found
    return found


class TracedGraph(_Graph):
    """Graph under tracing: index tensors and sizes, unchecked until the program runs."""

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> None:
        self._tensors: IndexTensors = src, dst, None
        self._num_src, self._num_dst, self._num_edges = num_src, num_dst, src.shape[0]


def graph_of(tensors: IndexTensors, sizes: tuple[int, int, int]) -> _graph.Graph:
    """Return the graph of index tensors: their owner, or an equal graph, packed once."""
    owner = _with_tensors.get(_key(tensors, sizes))
    if owner is not None:
        return owner
    src, dst, ids = tensors
    arrays = src.cpu().numpy(), dst.cpu().numpy(), None if ids is None else ids.cpu().numpy()
    for graph in list(_packed)[::-1]:
        held = (graph._src, graph._dst, graph._ids)
        if sizes == (graph._num_src, graph._num_dst, graph._num_edges) and all(
            _same(one, other) for one, other in zip(arrays, held, strict=True)
        ):
            return graph
    packed = _graph._restore(*arrays, *sizes)
    _packed.append(packed)
    return packed


def _key(tensors: IndexTensors, sizes: tuple[int, int, int]) -> Key:
    return *(None if t is None else (t.data_ptr(), len(t)) for t in tensors), *sizes


def _same(one: Indices | None, other: Indices | None) -> bool:
    if one is None or other is None:
        return one is other
    if len(one) != len(other) or not np.array_equal(one[:_PREFIX], other[:_PREFIX]):
        return False
    return np.array_equal(one, other)
