"""Graphs whose indices torch can see: what compiled functions take in place of `pyops.Graph`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import graph as _graph

_MOST_GRAPHS = 64
_found: OrderedDict[tuple[Any, ...], tuple[tuple[Tensor | None, ...], _graph.Graph]] = OrderedDict()


class Graph(_graph.Graph):
    __doc__ = (
        (_graph.Graph.__doc__ or "").partition("\n")[0]
        + """

    A `pyops.Graph`, with the same arguments, that `torch.compile` and `torch.export` can read.
    Indices may be tensors or arrays; they are copied.
    """
    )
    __slots__ = ("_tensors",)
    _tensors: tuple[Tensor, Tensor, Tensor | None]

    def _fill(self, *arguments: Any) -> None:
        super()._fill(*arguments)
        held = (self._src, self._dst, self._ids)
        tensors = tuple(None if a is None else torch.from_numpy(np.array(a)) for a in held)
        object.__setattr__(self, "_tensors", tensors)


def graph_of(tensors: tuple[Tensor | None, ...], sizes: tuple[int, ...]) -> _graph.Graph:
    """The graph of index tensors, packed once for as long as these are in use."""
    key = *((t.data_ptr(), len(t), t._version) for t in tensors if t is not None), sizes
    if key in _found:
        _found.move_to_end(key)
        return _found[key][1]
    src, dst, ids = (None if t is None else t.numpy() for t in tensors)
    graph = _graph._restore(src, dst, ids, *sizes)  # type: ignore[arg-type]
    _found[key] = tensors, graph  # which keeps the addresses taken
    if len(_found) > _MOST_GRAPHS:
        _found.popitem(last=False)
    return graph
