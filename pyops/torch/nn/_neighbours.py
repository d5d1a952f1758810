"""Graphs of neighbours in compressed rows: dicts of neighbors_index and neighbors_row_splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from ... import graph as _graph
from .._call import recording
from .._graph import Ends, Graph
from .._host import on_host
from ._edge_index import rows_of

_MOST_GRAPHS = 16
_recent: deque[tuple[tuple[Any, Any], Graph, _graph.Graph]] = deque(maxlen=_MOST_GRAPHS)


def graphs_of_neighbours(
    neighbours: Mapping[str, Tensor], num_src: int
) -> tuple[Graph | Ends, _graph.Graph | None]:
    """The graph from neighbours to rows, packed once for as long as they are in use, and the one
    turned round, None where torch traces.

    It is told by its contents: tensors may be new ones, or be written to.
    """
    index, splits = neighbours["neighbors_index"], neighbours["neighbors_row_splits"]
    if recording(index):
        return Ends(index, rows_of(splits, index.shape[0]), num_src, splits.shape[0] - 1), None
    index, splits = plain(index), plain(splits)
    with temporarily_clear_interpreter_stack():
        arrays = on_host(index).numpy(), on_host(splits).numpy()
        for held, graph, back in list(_recent):
            if graph.num_src == num_src and all(map(np.array_equal, arrays, held)):
                return graph, back
        made: Graph = Graph.from_csc(arrays[1], arrays[0], num_src)  # type: ignore[assignment]
    for name in ("in_offsets", "out_offsets"):
        made._index(name)  # which both share
    back = made.reverse()
    _recent.appendleft(((arrays[0].copy(), arrays[1].copy()), made, back))
    return made, back


def plain(tensor: Tensor) -> Tensor:
    """The tensor itself, within transformations of torch.func that wrap it."""
    while torch._C._functorch.is_gradtrackingtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor
