"""Graphs of neighbour lists in CSR form: dicts of neighbors_index and neighbors_row_splits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from ..._call import check, is_tracing
from ..._graph import Graph, TracedGraph
from ..._host import on_host, plain
from .edge_index import check_offsets, integers, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .... import graph as _graph
    from ...._call.indices import Indices

_MOST_GRAPHS = 16
_recent: deque[tuple[tuple[Indices, Indices], _graph.Graph, _graph.Graph]] = deque(
    maxlen=_MOST_GRAPHS
)


def graphs_of_neighbours(
    caller: str, neighbours: Mapping[str, Tensor], num_src: int
) -> tuple[_graph.Graph | TracedGraph, _graph.Graph | None]:
    """Return the graph from neighbours to rows and its reverse, packed once while in use.

    The reverse is None if torch traces. Graphs are cached by the elements of the index, not by the
    tensors, which may be new or written to.
    """
    label = f"{caller}: neighbors: neighbors"
    index = integers(f"{label}_index", neighbours["neighbors_index"])
    splits = integers(f"{label}_row_splits", neighbours["neighbors_row_splits"])
    if is_tracing(index):
        return TracedGraph(
            index, rows_of(splits, index.shape[0]), num_src, splits.shape[0] - 1
        ), None
    index, splits = plain(index), plain(splits)
    with temporarily_clear_interpreter_stack():
        arrays = on_host(index).numpy(), on_host(splits).numpy()
        for held, graph, back in list(_recent):
            if graph.num_src == num_src and all(map(np.array_equal, arrays, held)):
                return graph, back
        check_offsets(f"{label}_row_splits", splits, len(index))
        try:
            graph = Graph.from_csc(*arrays[::-1], num_src)
        except IndexError as error:
            raise IndexError(f"{label}_index: {error}") from None
    for name in ("in_offsets", "out_offsets"):
        graph._index(name)  # the graph and its reverse share them
    back = graph.reverse()
    _recent.appendleft(((arrays[0].copy(), arrays[1].copy()), graph, back))
    return graph, back


def check_points(label: str, points: object, coordinates: int | None = None) -> None:
    """Refuse an argument that is not a tensor of points [n, coordinates]."""
    if not isinstance(points, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(points).__name__}")
    if not points.is_floating_point():
        raise TypeError(f"{label}: expected floating-point coordinates, got {points.dtype}")
    check(label, points)
    if points.dim() != 2 or (coordinates is not None and points.shape[1] != coordinates):
        raise ValueError(
            f"{label}: expected shape (n, {'d' if coordinates is None else coordinates}), the same "
            f"points for a whole batch, got {tuple(points.shape)}"
        )


def check_alike(label: str, given: Tensor, first: str, like: Tensor) -> None:
    """Refuse a tensor whose precision differs from that of the first argument."""
    if given.dtype != like.dtype:
        raise TypeError(f"{label}: expected {like.dtype} like {first}, got {given.dtype}")


def check_radius(label: str, radius: float) -> float:
    """Return the argument as a float if it is a nonnegative number."""
    try:
        if isinstance(radius, (bool, str, bytes)):
            raise TypeError
        number = float(radius)
    except (TypeError, ValueError):
        raise TypeError(f"{label}: expected a number from 0 on, got {radius!r}") from None
    if not number >= 0:
        raise ValueError(f"{label}: expected a number from 0 on, got {radius!r}")
    return number


def check_function(label: str, f: Tensor, points: int) -> None:
    """Refuse values whose shape is not [points, d] or [batch, points, d]."""
    check(label, f)
    if f.dim() not in (2, 3) or f.shape[-2] != points or 0 in f.shape[:-2]:
        raise ValueError(
            f"{label}: expected shape ({points}, d) or (batch, {points}, d), got {tuple(f.shape)}"
        )
