"""The graphs of pylibcugraphops, in CSC form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..._call.indices import Indices, check_indices
from ...graph import Graph
from ._names import names_of_call

if TYPE_CHECKING:
    from ..._call.types import Array
    from ._queue import AnyGraph

Integers = npt.ArrayLike
_NAMES = {"num_src": "n_src_nodes", "edge_ids": "map_csc_to_coo"}


class BipartiteCsc:
    """A bipartite graph, made by `make_bipartite_csc` from int32 or int64 arrays."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.derived_graphs: dict[str, AnyGraph] = {}
        self.derived_arrays: dict[str, Array | Indices] = {}
        """Caches of calls, see `_queue`."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "derived_graphs": {}, "derived_arrays": {}}

    @property
    def n_src_nodes(self) -> int:
        """Number of source nodes."""
        return self.graph.num_src

    @property
    def n_dst_nodes(self) -> int:
        """Number of destination nodes."""
        return self.graph.num_dst

    @property
    def n_indices(self) -> int:
        """Number of entries."""
        return self.graph.num_entries

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_src_nodes={self.n_src_nodes}, "
            f"n_dst_nodes={self.n_dst_nodes}, n_indices={self.n_indices})"
        )


class bipartite_csc_int32(BipartiteCsc):  # noqa: N801
    """A bipartite graph of int32 arrays."""


class bipartite_csc_int64(BipartiteCsc):  # noqa: N801
    """A bipartite graph of int64 arrays."""


def make_bipartite_csc(
    offsets: Integers, indices: Integers, n_src_nodes: int, map_csc_to_coo: Integers | None = None
) -> BipartiteCsc:
    """Make a bipartite graph.

    Parameters
    ----------
    offsets : array_like of int32 or int64, shape (n_dst_nodes + 1,)
        The entries into destination i are those from offsets[i] to offsets[i + 1] - 1.
    indices : array_like of the same, shape (n_indices,)
        Source node of each entry.
    n_src_nodes : int
        Number of source nodes.
    map_csc_to_coo : array_like of the same, shape (n_indices,), optional
        Row of the edge arrays of each entry; if not given, entry k has row k.

    Raises
    ------
    TypeError, ValueError, IndexError, OverflowError
        As for `pyops.Graph.from_csc`; TypeError also for arrays of different types.
    """
    return built("make_bipartite_csc", offsets, indices, n_src_nodes, map_csc_to_coo)


def built(
    caller: str,
    offsets: Integers,
    indices: Integers,
    n_src_nodes: int,
    map_csc_to_coo: Integers | None,
) -> BipartiteCsc:
    """Make a bipartite graph; error messages name the caller's arguments."""
    arrays = {"offsets": offsets, "indices": indices}
    arrays |= {} if map_csc_to_coo is None else {"map_csc_to_coo": map_csc_to_coo}
    checked = {n: check_indices(f"{caller}: {n}", a) for n, a in arrays.items()}
    kind = checked["offsets"].dtype
    for name, array in checked.items():
        if array.dtype != kind:
            raise TypeError(f"{caller}: {name}: expected {kind} like offsets, got {array.dtype}")
    ids, (starts, sources) = checked.pop("map_csc_to_coo", None), checked.values()
    with names_of_call(caller, _NAMES):
        graph = Graph.from_csc(starts, sources, n_src_nodes, ids)
    return (bipartite_csc_int32 if kind == np.int32 else bipartite_csc_int64)(graph)
