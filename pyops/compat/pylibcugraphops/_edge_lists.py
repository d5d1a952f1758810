"""Graphs from edge lists that the caller has also sorted by source and by destination."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._call.indices import check_indices, check_integers
from ...graph import Graph
from ._index_cache import cached, on_host
from ._queue import AnyGraph, current_device

Integers = npt.ArrayLike


def graph_of(caller: str, coo_idx: Integers, **packed: Integers) -> AnyGraph:
    """Return the graph of a call, on the device of its arrays."""

    def make() -> AnyGraph:
        graph = _checked(caller, coo_idx, **packed)
        if current_device() is None:
            return graph
        return cached(f"graph of {graph.num_dst} nodes", [coo_idx], graph.to_device)

    return cached(f"coo_idx {' '.join(packed)}", [coo_idx, *packed.values()], make)


def _checked(caller: str, coo_idx: Integers, **packed: Integers) -> Graph:
    """Return the graph of the edge list; check offsets and permutation against the list."""
    ends = check_integers(f"{caller}: coo_idx", on_host(coo_idx))
    if ends.ndim != 2 or len(ends) != 2:
        raise ValueError(f"{caller}: coo_idx: expected shape (2, num_edges), got {ends.shape}")
    src, dst = ends
    arrays = {n: check_indices(f"{caller}: {n}", on_host(a)) for n, a in packed.items()}
    (name, offsets) = next((n, a) for n, a in arrays.items() if n.endswith("offsets"))
    others = ValueError(f"{caller}: {name}: expected the offsets of coo_idx, got others")
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(src):
        raise others
    graph = Graph(src, dst, len(offsets) - 1)
    rows = src if name == "src_offsets" else dst
    if not np.array_equal(np.diff(offsets), np.bincount(rows, minlength=graph.num_dst)):
        raise others
    if "dst_edge_index" in arrays:
        order = arrays["dst_edge_index"]
        if len(order) != len(dst) or not np.array_equal(np.sort(order), np.arange(len(dst))):
            raise ValueError(f"{caller}: dst_edge_index: expected each edge once, got others")
        if (np.diff(dst[order]) < 0).any():
            raise ValueError(f"{caller}: dst_edge_index: expected edges by destination")
    elif (np.diff(src) < 0).any():
        raise ValueError(f"{caller}: coo_idx: expected edges sorted by source")
    return graph
