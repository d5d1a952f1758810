"""Graphs of edge lists, packed once for the same tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import graph as _graph
from ..._call import is_tracing
from ..._graph import TracedGraph
from ..._host import is_mapped, on_host
from .cache import cached
from .edge_index import check_device, integers

if TYPE_CHECKING:
    from torch import Tensor

    from ...._call.indices import Indices


def graph_of_indices(
    caller: str, ends: dict[str, Tensor], num_src: int, num_dst: int
) -> _graph.Graph | TracedGraph:
    """Return the graph with one edge per entry, from the first of `ends` to the last.

    The keys of `ends` are the names of arguments of the caller.
    """
    src, *_, dst = [*ends.values()] * 2
    if is_tracing():
        return TracedGraph(src, dst, num_src, num_dst)
    for name, index in ends.items():
        check_device(f"{caller}: {name}", integers(f"{caller}: {name}", index), dst.device)
        if is_mapped(index):
            raise NotImplementedError(f"{caller}: {name}: vmap over graphs")
    check_rows(caller, len(src), ends)

    src, dst = on_host(src), on_host(dst)

    def pack() -> _graph.Graph:
        try:
            return _graph._restore(src.numpy(), dst.numpy(), None, num_src, num_dst, len(dst))
        except IndexError as error:
            reason = str(error).removeprefix("Graph: ")
            raise IndexError(f"{caller}: {' and '.join(ends)}: {reason}") from None

    def held(graph: _graph.Graph) -> list[Indices]:
        return [graph._src, graph._dst]

    return cached([src, dst], ("indices", num_src, num_dst), pack, held)


def check_rows(caller: str, rows: int, given: dict[str, Tensor]) -> None:
    """Refuse arguments that do not have `rows` rows."""
    if is_tracing():
        return
    for name, value in given.items():
        if len(value) != rows:
            raise ValueError(f"{caller}: {name}: expected {rows} rows, as many as "
                             f"the others have, got {len(value)}")  # fmt: skip
