"""Reductions that are determined by statistics of messages: launches of kernels/statistics.cu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._message_statistics import ROWS
from . import _neighbours as neighbours

if TYPE_CHECKING:
    from ._array import DeviceArray, Value
    from ._graph import DeviceGraph
    from ._neighbours import Columns
    from ._runtime import Runtime

_CODES = {row.name: code for code, row in ROWS}
POWERMEAN, SOFTMAX = _CODES["powermean"], _CODES["softmax"]


class Messages:
    """Messages from a table of sources or edges, with statistics of each destination and column.

    The tangents are those of the table and of the weights.
    """

    def __init__(
        self,
        rt: Runtime,
        graph: DeviceGraph,
        reduce: int,
        number: float,
        table: DeviceArray,
        of_edges: bool,
        weight: DeviceArray | None,
        tangents: DeviceArray | None,
        hweight: DeviceArray | None,
    ) -> None:
        self._rt, self._graph, self._reduce, self._number = rt, graph, reduce, number
        self._of_edges, self._width = of_edges, table.shape[1]
        self._edges = graph._index("in_edges")
        self._nodes = None if of_edges else graph._index("in_nodes")
        self._table, self._weight = table, weight
        self._tangents, self._hweight = tangents, hweight
        self._stats: DeviceArray | None = None
        self._moved: DeviceArray | None = None

    def _launch(self, kernel: str, units: int, lanes: int, *args: Value) -> None:
        grid = neighbours.blocks(units, lanes)
        self._rt.launch(
            "statistics", kernel, self._table.dtype, grid, neighbours.THREADS, args,
            REDUCE=self._reduce,
        )  # fmt: skip

    def _find(self, out: Columns | None, accumulate: bool) -> None:
        graph = self._graph
        placed = (None, 0, 0) if out is None else (out.array, out.stride, out.first)
        self._launch(
            "find_statistics", graph.num_dst * self._width, 1, graph.num_dst,
            graph._index("in_offsets"), self._nodes, self._edges, self._edges, self._weight,
            self._table, self._width, self._number, self._stats, accumulate, *placed,
        )  # fmt: skip

    def reduce(self, out: Columns, accumulate: bool) -> None:
        """`out` (+)= the reduction."""
        self._find(out, accumulate)

    def find(self) -> None:
        """Find the statistics."""
        self._stats = self._rt.empty((3, self._graph.num_dst, self._width), "float64")
        self._find(None, False)

    def find_tangents(self, out: Columns, accumulate: bool) -> None:
        """Find the derivatives of the statistics; `out` (+)= that of the reduction."""
        graph = self._graph
        self._moved = self._rt.empty((2, graph.num_dst, self._width), "float64")
        self._launch(
            "find_tangents", graph.num_dst * self._width, 1, graph.num_dst,
            graph._index("in_offsets"), self._nodes, self._edges, self._edges, self._weight,
            self._table, self._tangents, self._hweight, self._width, self._number, self._stats,
            self._moved, accumulate, out.array, out.stride, out.first,
        )  # fmt: skip

    def by_table(self, gy: Columns, out: DeviceArray, accumulate: bool) -> None:
        """`out` (+)= the gradient by the table, or its derivative if tangents were found."""
        graph, side = self._graph, "id" if self._of_edges else "out"
        rows = graph.num_edges if self._of_edges else graph.num_src
        self._launch(
            "vjp_table", rows * self._width, 1, rows, graph._index(f"{side}_offsets"),
            graph._index(f"{side}_entries"), neighbours.owners(graph), graph.num_dst,
            graph._index("in_offsets"), self._edges, self._weight, self._table, self._tangents,
            self._hweight, self._width, self._number, self._stats, self._moved, gy.array,
            gy.stride, gy.first, accumulate, out,
        )  # fmt: skip

    def by_weight(self, gy: Columns, out: DeviceArray, accumulate: bool) -> None:
        """`out` (+)= the gradient by the weights, or its derivative if tangents were found."""
        graph = self._graph
        self._launch(
            "vjp_weights", graph.num_edges, 32, graph.num_edges, graph._index("id_offsets"),
            graph._index("id_entries"), neighbours.owners(graph), graph.num_dst,
            graph._index("in_offsets"), self._nodes, self._edges, self._edges, self._weight,
            self._table, self._tangents, self._hweight, self._width, self._number, self._stats,
            self._moved, gy.array, gy.stride, gy.first, accumulate, out,
        )  # fmt: skip
