"""Graphs of neighbours in compressed rows: dicts of neighbors_index and neighbors_row_splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor

from ... import graph as _graph
from .._graph import Ends, Graph
from ._edge_index import tracing

_MOST_GRAPHS = 16
_recent: deque[tuple[Tensor, Tensor, Graph, _graph.Graph]] = deque(maxlen=_MOST_GRAPHS)


def graphs_of_neighbours(
    neighbours: Mapping[str, Tensor], num_src: int
) -> tuple[Graph | Ends, _graph.Graph | None]:
    """The graph from neighbours to rows, packed once for as long as they are in use, and the one
    turned round, None where torch traces.

    It is told by its contents: tensors may be new ones, or be written to.
    """
    index, splits = neighbours["neighbors_index"], neighbours["neighbors_row_splits"]
    if tracing(index):
        counts = splits.diff()
        rows = torch.arange(len(counts), dtype=index.dtype)
        dst = rows.repeat_interleave(counts, output_size=index.shape[0])
        return Ends(index, dst, num_src, len(counts)), None
    for others, other_splits, graph, back in list(_recent):
        alike = graph.num_src == num_src and torch.equal(splits, other_splits)
        if alike and torch.equal(index, others):
            return graph, back
    made: Graph = Graph.from_csc(splits.numpy(), index.numpy(), num_src)  # type: ignore[assignment]
    for name in ("in_offsets", "out_offsets"):
        made._index(name)  # which both share
    _recent.appendleft((index.clone(), splits.clone(), made, made.reverse()))
    return _recent[0][2:]
