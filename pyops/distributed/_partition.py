"""Partitions of nodes over ranks: METIS on the graph, or bisection of coordinates."""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING

import numpy as np

from .._call.arrays import check_size, kind_of
from ._graph import DistributedGraph
from ._halo import joined

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt

    from ._mpi import Counts, Engine, Values

_CALLER = "partition"
_CLUSTERS = 64
"""Blocks of own nodes, over all ranks, for each part."""


def partition(
    graph: DistributedGraph,
    parts: int | None = None,
    *,
    method: str = "metis",
    coordinates: npt.ArrayLike | None = None,
) -> Counts:
    """Assign each node to a part, so that parts are equal and few edges run between them.

    Collective. For ``method="metis"`` one rank lets METIS cut the graph. On several ranks that
    graph is a small one: each rank lets METIS cut the graph of its own nodes into clusters, and
    these are its nodes. So neighbours should have near numbers, as they have after a partition by
    coordinates. For ``method="coordinates"`` the longest axis of each set of points is bisected
    until there is a set for each part; the result depends on no number of ranks.

    Parameters
    ----------
    graph : DistributedGraph
        Its sources and destinations are the same nodes.
    parts : int, optional
        Number of parts; by default the number of ranks.
    method : {"metis", "coordinates"}
    coordinates : array_like of float, shape (num_dst, dim), optional
        Coordinates of the own nodes, for ``method="coordinates"``.

    Returns
    -------
    array of int64, shape (num_dst,)
        Part of each own node, from 0 to parts - 1, for `Communicator.graph`.

    Raises
    ------
    ImportError
        If pymetis is missing.
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> import pyops.distributed
    >>> comm, points = pyops.distributed.Communicator(MPI.COMM_WORLD), np.arange(4.0)[:, None]
    >>> graph = comm.graph([0, 1, 2, 3], [1, 0, 3, 2], owned=(0, 4))
    >>> pyops.distributed.partition(graph, 2, method="coordinates", coordinates=points)
    array([0, 0, 1, 1])
    """
    if not isinstance(graph, DistributedGraph):
        raise TypeError(f"{_CALLER}: graph: expected DistributedGraph, got {kind_of(graph)}")
    comm = graph.comm

    def check() -> tuple[int, Values | None]:
        count = check_size(f"{_CALLER}: parts", comm.size if parts is None else parts)
        if method not in ("metis", "coordinates"):
            expected = "'metis' or 'coordinates'"
            raise ValueError(f"{_CALLER}: method: expected {expected}, got {method!r}")
        if (coordinates is None) != (method == "metis"):
            expected = "None" if method == "metis" else "the coordinates of the own nodes"
            raise ValueError(
                f"{_CALLER}: coordinates: expected {expected} for {method!r}, "
                f"got {kind_of(coordinates)}"
            )
        if method == "coordinates":
            return count, _check_points(graph, coordinates)
        if graph._sources is not graph._destinations:
            raise ValueError(
                f"{_CALLER}: graph: expected the same nodes as sources and destinations, "
                "got a graph with owned_src"
            )
        _load()
        return count, None

    count, points = comm._together(
        _CALLER, check, lambda f: (graph._number, f[0], None if f[1] is None else f[1].shape[1:])
    )
    if points is not None:
        return _bisect(comm._engine, points, count)
    return _cut(graph, count)


def _load() -> ModuleType:
    try:
        module = importlib.import_module("pymetis")
    except ImportError as error:
        raise ImportError(
            f"{_CALLER}: method: expected pymetis for 'metis', which "
            f'`pip install "pyops-kernels[mpi]"` brings: {error}'
        ) from error
    return module


def _check_points(graph: DistributedGraph, coordinates: object) -> Values:
    label = f"{_CALLER}: coordinates"
    points = np.asarray(coordinates)
    if points.dtype.kind not in "iuf":
        raise TypeError(f"{label}: expected numbers, got {points.dtype}")
    if points.ndim != 2 or len(points) != graph.num_dst or points.shape[1] == 0:
        raise ValueError(
            f"{label}: expected shape (num_dst={graph.num_dst}, dim), got {points.shape}"
        )
    points = points.astype(np.float64)
    if not np.isfinite(points).all():
        raise ValueError(f"{label}: expected finite numbers, got others")
    return points + 0.0  # -0.0 becomes 0.0


def _bisect(engine: Engine, points: Values, parts: int) -> Counts:
    """Return the parts by recursive coordinate bisection, level by level, all sets at once."""
    part = np.zeros(len(points), np.int64)
    counts = np.array([parts])  # parts of each set, which is numbered by its first part
    firsts = np.array([0])
    while (counts > 1).any():
        sets = np.searchsorted(firsts, part)
        axes = _longest(engine, points, sets, len(firsts))
        keys = _ordered(np.take_along_axis(points, axes[sets][:, None], 1)[:, 0])
        sizes = engine.sum(np.bincount(sets, minlength=len(firsts)).astype(np.int64))
        lower = counts // 2
        left = _lowest(engine, keys, sets, sizes * lower // counts)
        part += np.where(left, 0, lower[sets])
        split = lower > 0
        firsts = np.concatenate([firsts, (firsts + lower)[split]])
        counts = np.concatenate([np.where(split, lower, counts), (counts - lower)[split]])
        order = np.argsort(firsts)
        firsts, counts = firsts[order], counts[order]
    return part


def _longest(engine: Engine, points: Values, sets: Counts, count: int) -> Counts:
    """Return the axis of largest extent of each set."""
    bounds = np.full((2, count, points.shape[1]), np.inf)
    for bound, values in zip(bounds, (points, -points), strict=True):
        np.minimum.at(bound, sets, values)
    low, high = engine.min(bounds)
    found: Counts = np.argmax(np.where(np.isfinite(low), -high - low, 0), axis=1)
    return found


def _ordered(values: Values) -> Counts:
    """Return int64 numbers in the order of float64 values."""
    bits = values.view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def _lowest(engine: Engine, keys: Counts, sets: Counts, wanted: Counts) -> npt.NDArray[np.bool_]:
    """Select the `wanted` lowest keys of each set; of equal keys those of the first nodes."""
    order = np.lexsort((keys, sets))
    ends = np.searchsorted(sets[order], np.arange(len(wanted) + 1))
    rows = [keys[order[a:b]] for a, b in itertools.pairwise(ends)]
    low, high = np.full((2, len(wanted)), [[-(2**63)], [2**63 - 1]])
    while (low < high).any():  # the smallest key up to which there are enough
        middle = (low & high) + ((low ^ high) >> 1)
        below = [np.searchsorted(r, m, side="right") for r, m in zip(rows, middle, strict=True)]
        enough = engine.sum(np.array(below, np.int64)) >= wanted
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    chosen: npt.NDArray[np.bool_] = keys < low[sets]
    equal = np.flatnonzero(keys == low[sets])
    ties = np.bincount(sets[equal], minlength=len(wanted)).astype(np.int64)
    left = wanted - engine.sum(np.bincount(sets[chosen], minlength=len(wanted)).astype(np.int64))
    left -= engine.gather(ties)[: engine.rank].sum(0)
    for number in np.flatnonzero(left > 0):
        chosen[equal[sets[equal] == number][: left[number]]] = True
    return chosen


def _cut(graph: DistributedGraph, parts: int) -> Counts:
    """Return the parts by METIS: of all nodes on one rank, of clusters of the ranks on several."""
    comm, halo, local = graph.comm, graph._halo, graph.local
    src, dst = local.src.astype(np.int64) - halo.below, local.dst.astype(np.int64)
    own = (src >= 0) & (src < halo.owned)
    nodes = np.ones(halo.owned, np.int64)
    ends = src[own], dst[own], np.ones(int(own.sum()), np.int64)
    if comm.size == 1:
        return comm._together(_CALLER, lambda: _metis(*ends, nodes, parts))
    count = min(-(-_CLUSTERS * parts // comm.size), max(1, halo.owned))
    cluster = comm._together(_CALLER, lambda: _metis(*ends, nodes, count))
    engine = comm._engine
    ranges = joined(engine.gather(np.array([count]))[:, 0])
    (clusters,) = halo.exchange([cluster + ranges[comm.rank]])
    pairs = np.stack([clusters[local.src], clusters[halo.own][local.dst]], 1)
    pairs, weights = np.unique(pairs, axis=0, return_counts=True)
    to_first = np.zeros(comm.size, np.int64)
    to_first[0] = len(pairs)
    table, _ = engine.push(np.concatenate([pairs, weights[:, None]], 1), to_first)
    sizes = engine.gather(np.bincount(cluster, minlength=count).astype(np.int64)).reshape(-1)

    def join() -> Counts:
        if comm.rank > 0:
            return np.zeros(len(sizes), np.int64)
        return _metis(table[:, 0], table[:, 1], table[:, 2], sizes, parts)

    found: Counts = engine.sum(comm._together(_CALLER, join))[cluster + ranges[comm.rank]]
    return found


def _metis(src: Counts, dst: Counts, weights: Counts, nodes: Counts, parts: int) -> Counts:
    """Return the part of each node of a graph with weights of edges and nodes."""
    if parts == 1:
        return np.zeros(len(nodes), np.int64)
    if parts >= len(nodes):
        return np.arange(len(nodes))
    ends = np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])])
    ends, weights = ends[:, ends[0] != ends[1]], np.tile(weights, 2)[ends[0] != ends[1]]
    keys, where = np.unique(ends[0] * len(nodes) + ends[1], return_inverse=True)
    weights = np.bincount(where, weights, len(keys)).astype(np.int64)
    offsets = np.searchsorted(keys, np.arange(len(nodes) + 1) * len(nodes))
    _, part = _load().part_graph(
        parts,
        xadj=offsets,
        adjncy=keys % len(nodes),
        vweights=nodes,
        eweights=weights,
    )
    found: Counts = np.asarray(part, np.int64)
    return found
