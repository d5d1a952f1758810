"""Graphs of neighbours in compressed rows: dicts of neighbors_index and neighbors_row_splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor

from .._graph import Ends, Graph
from ._edge_index import tracing

_MOST_GRAPHS = 16
_recent: deque[tuple[Tensor, Tensor, Graph]] = deque(maxlen=_MOST_GRAPHS)


def graph_of_neighbours(neighbours: Mapping[str, Tensor], num_src: int) -> Graph | Ends:
    """The graph from neighbours to rows, packed once for as long as they are in use.

    It is told by its contents: tensors may be new ones, or be written to.
    """
    index, splits = neighbours["neighbors_index"], neighbours["neighbors_row_splits"]
    if tracing(index):
        counts = splits.diff()
        rows = torch.arange(len(counts), dtype=index.dtype)
        dst = rows.repeat_interleave(counts, output_size=index.shape[0])
        return Ends(index, dst, num_src, len(counts))
    for others, other_splits, graph in list(_recent):
        alike = graph.num_src == num_src and torch.equal(splits, other_splits)
        if alike and torch.equal(index, others):
            return graph
    made: Graph = Graph.from_csc(splits.numpy(), index.numpy(), num_src)  # type: ignore[assignment]
    _recent.appendleft((index.clone(), splits.clone(), made))
    return made
