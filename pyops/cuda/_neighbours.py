"""Sums, extremes and medians over the entries of rows.

Launches of kernels/neighbours.cu and kernels/medians.cu.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._array import real_type

if TYPE_CHECKING:
    from ._array import DeviceArray, DType, Value
    from ._graph import DeviceGraph
    from ._runtime import Runtime

SEGMENT = 256
"""Entries of a segment of a long row, as in kernels/common.cuh."""
THREADS = 256


@dataclass(frozen=True)
class Rows:
    """Entries of graph rows: offsets, and the table row that each entry refers to."""

    count: int
    entries: int
    offsets: DeviceArray | None
    nodes: DeviceArray | None = None
    edges: DeviceArray | None = None
    weighted: DeviceArray | None = None
    weight: DeviceArray | None = None
    longest: int = 0
    """Largest number of entries of a row."""

    @property
    def segments(self) -> int:
        """Upper bound of the number of segments of long rows."""
        return 2 * -(-self.entries // SEGMENT) if self.longest > SEGMENT else 0

    def partial(self, rt: Runtime, columns: int, dtype: DType) -> DeviceArray | None:
        """Return space for the sums of segments, None without segments."""
        return rt.empty((self.segments, columns), dtype) if self.segments else None


def incoming(graph: DeviceGraph, **tables: DeviceArray | None) -> Rows:
    """Return the entries of each destination (CSC)."""
    return _rows(graph, graph.num_dst, "in", tables)


def outgoing(graph: DeviceGraph, **tables: DeviceArray | None) -> Rows:
    """Return the entries of each source (CSR)."""
    return _rows(graph, graph.num_src, "out", tables)


def of_edges(graph: DeviceGraph, **tables: DeviceArray | None) -> Rows:
    """Return the entries of each edge."""
    return _rows(graph, graph.num_edges, "id", tables)


def _rows(graph: DeviceGraph, count: int, side: str, tables: dict[str, DeviceArray | None]) -> Rows:
    offsets, longest = graph._index(f"{side}_offsets"), graph._longest(side)
    return Rows(count, graph.num_entries, offsets, longest=longest, **tables)


@dataclass(frozen=True)
class Columns:
    """Columns of an array, from `first`; `stride` is the leading dimension."""

    array: DeviceArray | None
    stride: int
    first: int = 0


def lanes_of(width: int) -> int:
    """Return the number of lanes that process a row of this width."""
    return min(32, max(4, 1 << (width - 1).bit_length()))


def blocks(units: int, lanes: int) -> int:
    return -(-units * lanes // THREADS)


def grid_of(units: int, width: int) -> tuple[int, int]:
    """Return the blocks for this number of rows, and those that share a row of this width."""
    lanes = lanes_of(width)
    return blocks(units, lanes), -(-width // 128) if lanes == 32 else 1


def _launch(rt: Runtime, kernel: str, dtype: DType, rows: Rows, width: int, *args: Value) -> None:
    """Launch a kernel for the segments of long rows, then for the rows."""
    for segments, units in ((1, rows.segments), (0, rows.count)):
        grid, chunks = grid_of(units, width)
        shape = grid, 1 if kernel == "dot_rows" else chunks
        every = (segments, rows.count, rows.entries, rows.offsets, *args)
        rt.launch("neighbours", kernel, dtype, shape, THREADS, every, LANES=lanes_of(width))


def add(
    rt: Runtime,
    rows: Rows,
    table: Columns,
    width: int,
    out: Columns,
    accumulate: bool,
    *,
    mean: bool = False,
    by_table: DeviceArray | None = None,
    scales: DeviceArray | None = None,
    argextremes: DeviceArray | None = None,
    positions: DeviceArray | None = None,
    backward: bool = False,
    stride: int = 0,
) -> None:
    """`out` (+)= the sums over the rows, see `sum_rows`."""
    partial = rows.partial(rt, width, "float64")
    assert table.array is not None
    _launch(
        rt, "sum_rows", table.array.dtype, rows, width, rows.nodes, rows.edges, rows.weighted,
        rows.weight, by_table, scales, mean, argextremes, positions, backward, stride, table.array,
        table.stride, table.first, width, partial, accumulate, out.array, out.stride, out.first,
    )  # fmt: skip


def add_table(
    rt: Runtime, rows: Rows, table: DeviceArray, out: DeviceArray, accumulate: bool
) -> None:
    """`out` (+)= the sums over the rows of all columns of a table."""
    width = table.shape[1]
    add(rt, rows, Columns(table, width), width, Columns(out, width), accumulate)


def extremes(
    rt: Runtime,
    rows: Rows,
    most: bool,
    values: DeviceArray,
    width: int,
    out: Columns,
    accumulate: bool,
    argextremes: DeviceArray | None = None,
) -> None:
    """`out` (+)= the column-wise maximum or minimum, and the entries that attain it."""
    partial = rows.partial(rt, width, real_type(values.dtype))
    firsts = rows.partial(rt, width, "int64")
    _launch(
        rt, "extreme_rows", values.dtype, rows, width, rows.nodes, rows.edges, rows.weighted,
        rows.weight, most, values, width, partial, firsts, accumulate, out.array, out.stride,
        out.first, argextremes,
    )  # fmt: skip


def medians(
    rt: Runtime,
    rows: Rows,
    values: DeviceArray,
    width: int,
    out: Columns,
    accumulate: bool,
    argmedians: DeviceArray | None = None,
) -> None:
    """`out` (+)= the column-wise lower median, and the entries that attain it."""
    args = (
        rows.count, rows.offsets, rows.nodes, rows.edges, rows.weighted, rows.weight, values, width,
        accumulate, out.array, out.stride, out.first, argmedians,
    )  # fmt: skip
    rt.launch("medians", "median_rows", values.dtype, blocks(rows.count * width, 1), THREADS, args)


def dot(
    rt: Runtime,
    graph: DeviceGraph,
    by_edge: bool,
    gradient: Columns,
    values: DeviceArray,
    width: int,
    out: DeviceArray,
    accumulate: bool,
    *,
    mean: bool = False,
    scales: tuple[DeviceArray | None, DeviceArray | None] = (None, None),
    argextremes: DeviceArray | None = None,
) -> None:
    """`out` (+)= the products, summed by edge, of table rows and gradients of destinations.

    The table has a row for each edge or for each source. `scales` are factors of the rows of the
    table and of the gradients.
    """
    rows = of_edges(graph, nodes=None if by_edge else graph._index("in_nodes"))
    partial = rows.partial(rt, 1, "float64")
    _launch(
        rt, "dot_rows", values.dtype, rows, width, graph._index("id_entries"), rows.nodes,
        owners(graph), graph._index("in_offsets"), mean, argextremes, gradient.stride,
        gradient.first, values, width, gradient.array, *scales, partial, accumulate, out,
    )  # fmt: skip


def gather(
    rt: Runtime, rows: Rows, positions: DeviceArray, table: DeviceArray, out: Columns,
    accumulate: bool,
) -> None:  # fmt: skip
    """`out` (+)= the table row of each entry, gathered and stored at its position."""
    width = table.shape[1]
    of = rows.nodes, rows.edges, positions
    _take(rt, rows.entries, of, Columns(table, width), width, out, accumulate)


def copy(
    rt: Runtime, count: int, table: Columns, width: int, out: Columns, accumulate: bool
) -> None:
    """`out` (+)= some columns of a table."""
    _take(rt, count, (None, None, None), table, width, out, accumulate)


def _take(
    rt: Runtime, count: int, indices: tuple[Value, ...], table: Columns, width: int, out: Columns,
    accumulate: bool,
) -> None:  # fmt: skip
    assert table.array is not None
    args = (
        count, *indices, table.array, table.stride, table.first, width, accumulate, out.array,
        out.stride, out.first,
    )  # fmt: skip
    grid, kind = grid_of(count, width), table.array.dtype
    rt.launch("neighbours", "take_rows", kind, grid, THREADS, args, LANES=lanes_of(width))


def owners(graph: DeviceGraph) -> DeviceArray:
    """Return the destination of each entry in CSC order, 1-based."""
    return graph._index("in_rows")


def ends_by_edge(graph: DeviceGraph) -> tuple[DeviceArray, DeviceArray]:
    """Return destinations and edges of the entries of each edge, in edge order."""
    order = graph._index("id_entries")[: graph.num_entries] - 1
    return owners(graph)[order], graph._index("in_edges")[order]
