"""Graphs whose index arrays are on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._call.arrays import check_size
from .._call.indices import Indices
from ..graph import Graph
from ._device import Platform, platform

PIECE = 1024
"""Most entries of a row segment."""


class DeviceGraph:
    """A graph on a CUDA device, made by `Graph.to_device`; takes arrays of that device only.

    Each index array is copied on first use and kept.
    """

    __slots__ = ("_arrays", "_device", "_host", "_platform", "_rows")

    def __init__(self, host: Graph, on: Platform, device: int) -> None:
        self._host, self._platform, self._device = host, on, device
        self._arrays: dict[str, Any] = {}
        self._rows: dict[Any, tuple[Any, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return to_device, (self._host, self._device)

    @property
    def device(self) -> int:
        """Device number."""
        return self._device

    @property
    def num_src(self) -> int:
        """Number of source nodes."""
        return self._host.num_src

    @property
    def num_dst(self) -> int:
        """Number of destination nodes."""
        return self._host.num_dst

    @property
    def num_edges(self) -> int:
        """Number of rows of edge arrays."""
        return self._host.num_edges

    @property
    def num_entries(self) -> int:
        """Number of entries (source, destination)."""
        return self._host.num_entries

    @property
    def src(self) -> Any:
        """Source node of each entry, int32 [num_entries], on the device."""
        return self._index("src")

    @property
    def dst(self) -> Any:
        """Destination node of each entry, int32 [num_entries], on the device."""
        return self._index("dst")

    @property
    def edge_ids(self) -> Any:
        """Row of the edge arrays of each entry, int64 [num_entries], on the device."""
        return self._index("edge_ids")

    def to_host(self) -> Graph:
        """Return the host graph of this graph."""
        return self._host

    def to_device(self, device: int | None = None) -> DeviceGraph:
        """Return this graph, or the same on another device, see `Graph.to_device`."""
        return self if device == self._device else to_device(self._host, device)

    def with_edge_ids(self, *args: Any, **keywords: Any) -> DeviceGraph:
        """See `Graph.with_edge_ids`."""
        return to_device(self._host.with_edge_ids(*args, **keywords), self._device)

    def _here(self) -> Any:
        """Return a context in which the graph's device is current."""
        return self._platform.on(self._device)

    def rows(self, key: Any, given: Any, check: Callable[[], Indices]) -> Any:
        """Return row numbers of an option on the device: those of the last call if equal."""
        kept = self._rows.get(key)
        if kept is None or kept[0].dtype != given.dtype or not np.array_equal(kept[0], given):
            checked = check()
            kept = self._rows[key] = np.array(given), self._platform.copy(checked)
        return kept[1]

    def __repr__(self) -> str:
        return f"Device{self._host!r}"[:-1] + f", device={self._device})"

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device type and number of the index arrays, as DLPack arrays do."""
        return 2, self._device

    def _index(self, name: str) -> Any:
        """Return an index array of the kernels, 1-based and copied on first use.

        In addition to those of the host: ``in_rows``, the destination of each entry in CSC order;
        ``in_pieces`` and ``in_joins``, see `cut`; and the same for outgoing rows.
        """
        found = self._arrays.get(name)
        if found is None:
            with self._here():
                found = self._platform.copy(self._numbers(name))
            found = self._arrays.setdefault(name, found)
        return found

    def longest(self, side: str) -> int:
        """Return the largest in-degree ("in"), out-degree ("out") or entries of an edge ("id")."""
        return self._extremes(side)[1]

    def shortest(self, side: str) -> int:
        """Return the smallest; 0 if there are no rows."""
        return self._extremes(side)[0]

    def _extremes(self, side: str) -> tuple[int, int]:
        name = f"{side}_extremes"
        if name not in self._arrays:
            counts = np.diff(self._host._index(f"{side}_offsets"))
            self._arrays[name] = (counts.min(), counts.max()) if len(counts) else (0, 0)
        fewest, most = self._arrays[name]
        return int(fewest), int(most)

    def _numbers(self, name: str) -> Indices:
        if name in ("src", "dst", "edge_ids"):
            ends: Indices = getattr(self._host, name)
            return ends
        side, _, kind = name.partition("_")
        if kind not in ("rows", "pieces", "joins"):
            return self._host._index(name)
        offsets = self._host._index(f"{side}_offsets")
        if kind == "rows":
            return np.repeat(np.arange(1, len(offsets), dtype=np.int32), np.diff(offsets))
        return cut(offsets - 1)[kind == "joins"]


def cut(offsets: Indices) -> tuple[Indices, Indices]:
    """Split rows into segments of at most `PIECE` entries, at least one for each row.

    Returns row, first entry and end of each segment, and the segment offsets of each row, all
    0-based.
    """
    steps = np.diff(offsets)
    parts = np.maximum(1, -(-steps // PIECE))
    joins = np.concatenate([[0], np.cumsum(parts)]).astype(np.int64)
    row = np.repeat(np.arange(len(steps)), parts)
    start = offsets[row] + PIECE * (np.arange(len(row)) - joins[row])
    stop = np.minimum(start + PIECE, offsets[row + 1])
    return np.stack([row, start, stop], 1).astype(np.int64), joins


def to_device(host: Graph, device: int | None) -> DeviceGraph:
    """See `Graph.to_device`."""
    on = platform("Graph.to_device")
    if device is None:
        return DeviceGraph(host, on, on.current())
    return DeviceGraph(host, on, check_size("Graph.to_device: device", device, 0, on.count - 1))
