"""Graphs of edge lists, packed once for the same tensors."""

from __future__ import annotations

from torch import Tensor

from ... import graph as _graph
from ..._call.indices import Indices
from .._call import recording
from .._graph import Ends
from .._host import is_mapped, on_host
from ._edge_index import integers, placed
from ._remember import remembered


def graph_of_indices(
    caller: str, ends: dict[str, Tensor], num_src: int, num_dst: int
) -> _graph.Graph | Ends:
    """Return the graph with one edge per entry, from the first of `ends` to the last.

    The keys of `ends` are the names of arguments of the caller.
    """
    src, *_, dst = [*ends.values()] * 2
    if recording():
        return Ends(src, dst, num_src, num_dst)
    for name, index in ends.items():
        placed(f"{caller}: {name}", integers(f"{caller}: {name}", index), dst.device)
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

    return remembered([src, dst], ("indices", num_src, num_dst), pack, held)


def check_rows(caller: str, rows: int, given: dict[str, Tensor]) -> None:
    """Refuse arguments that do not have `rows` rows."""
    if recording():
        return
    for name, value in given.items():
        if len(value) != rows:
            raise ValueError(f"{caller}: {name}: expected {rows} rows, as many as "
                             f"the others have, got {len(value)}")  # fmt: skip
