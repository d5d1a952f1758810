"""Graphs whose index arrays are on a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._call.arrays import check_size
from ._device import Platform, platform

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .._call.indices import Indices
    from ..graph import Graph
    from ._array import DeviceArray

SEGMENT = 1024
"""Most entries of a row segment."""


class DeviceGraph:
    """A graph on a CUDA device, made by `Graph.to_device`; takes arrays of that device only.

    Each index array is copied on first use and kept.
    """

    __slots__ = ("_arrays", "_device", "_extremes", "_host", "_platform", "_rows")

    def __init__(self, host: Graph, on: Platform, device: int) -> None:
        self._host, self._platform, self._device = host, on, device
        self._arrays: dict[str, DeviceArray] = {}
        self._extremes: dict[str, tuple[int, int]] = {}
        self._rows: dict[tuple[object, ...], tuple[Indices, DeviceArray]] = {}

    def __reduce__(self) -> tuple[object, ...]:
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
    def src(self) -> DeviceArray:
        """Source node of each entry, int32 [num_entries], on the device."""
        return self._index("src")

    @property
    def dst(self) -> DeviceArray:
        """Destination node of each entry, int32 [num_entries], on the device."""
        return self._index("dst")

    @property
    def edge_ids(self) -> DeviceArray:
        """Row of the edge arrays of each entry, int64 [num_entries], on the device."""
        return self._index("edge_ids")

    def to_host(self) -> Graph:
        """Return the host graph of this graph."""
        return self._host

    def to_device(self, device: int | None = None) -> DeviceGraph:
        """Return this graph, or the same on another device; see `Graph.to_device`."""
        return self if device == self._device else to_device(self._host, device)

    def with_edge_ids(self, edge_ids: npt.ArrayLike, num_edges: int | None = None) -> DeviceGraph:
        """See `Graph.with_edge_ids`."""
        return to_device(self._host.with_edge_ids(edge_ids, num_edges), self._device)

    def _here(self) -> AbstractContextManager[object]:
        """Return a context in which the graph's device is current."""
        return self._platform.on(self._device)

    def _option_rows(
        self, key: tuple[object, ...], given: Indices, check: Callable[[], Indices]
    ) -> DeviceArray:
        """Return row numbers of an option on the device: those of the last call if equal."""
        last = self._rows.get(key)
        if last is None or last[0].dtype != given.dtype or not np.array_equal(last[0], given):
            checked = check()
            last = self._rows[key] = np.array(given), self._platform.copy(checked)
        return last[1]

    def __repr__(self) -> str:
        return f"Device{self._host!r}"[:-1] + f", device={self._device})"

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device type and number of the index arrays, as DLPack arrays do."""
        return 2, self._device

    def _index(self, name: str) -> DeviceArray:
        """Return an index array of the kernels, 1-based and copied on first use.

        In addition to those of the host: ``in_rows``, the destination of each entry in CSC order;
        ``in_segments`` and ``in_joins``, see `cut`; and the same for outgoing rows.
        """
        found = self._arrays.get(name)
        if found is None:
            with self._here():
                found = self._platform.copy(self._on_host(name))
            found = self._arrays.setdefault(name, found)
        return found

    def _longest(self, side: str) -> int:
        """Return the largest in-degree ("in"), out-degree ("out") or entries of an edge ("id")."""
        return self._degrees(side)[1]

    def _shortest(self, side: str) -> int:
        """Return the smallest; 0 if there are no rows."""
        return self._degrees(side)[0]

    def _degrees(self, side: str) -> tuple[int, int]:
        """Return the smallest and the largest number of entries of a row."""
        if side not in self._extremes:
            counts = np.diff(self._host._index(f"{side}_offsets"))
            extremes = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
            self._extremes[side] = extremes
        return self._extremes[side]

    def _on_host(self, name: str) -> Indices:
        if name in ("src", "dst", "edge_ids"):
            ends: Indices = getattr(self._host, name)
            return ends
        side, _, kind = name.partition("_")
        if kind not in ("rows", "segments", "joins"):
            return self._host._index(name)
        offsets = self._host._index(f"{side}_offsets")
        if kind == "rows":
            return np.repeat(np.arange(1, len(offsets), dtype=np.int32), np.diff(offsets))
        return cut(offsets - 1)[kind == "joins"]


def cut(offsets: Indices) -> tuple[Indices, Indices]:
    """Split rows into segments of at most `SEGMENT` entries, at least one for each row.

    Returns row, first entry and end of each segment, and the segment offsets of each row, all
    0-based.
    """
    steps = np.diff(offsets)
    parts = np.maximum(1, -(-steps // SEGMENT))
    joins = np.concatenate([[0], np.cumsum(parts)]).astype(np.int64)
    row = np.repeat(np.arange(len(steps)), parts)
    start = offsets[row] + SEGMENT * (np.arange(len(row)) - joins[row])
    stop = np.minimum(start + SEGMENT, offsets[row + 1])
    return np.stack([row, start, stop], 1).astype(np.int64), joins


def to_device(host: Graph, device: int | None) -> DeviceGraph:
    """See `Graph.to_device`."""
    on = platform("Graph.to_device")
    if device is None:
        return DeviceGraph(host, on, on.current())
    return DeviceGraph(host, on, check_size("Graph.to_device: device", device, 0, on.count - 1))
