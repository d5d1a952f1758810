"""Sums and extremes over the entries of rows: launches of kernels/neighbours.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._runtime import Runtime

PIECE = 256
"""Entries of a segment of a long row, as in kernels/common.cuh."""
THREADS = 256


@dataclass(frozen=True)
class Rows:
    """Entries of graph rows: offsets, and the table row that each entry refers to."""

    count: int
    entries: int
    offsets: Any
    nodes: Any = None
    edges: Any = None
    weighted: Any = None
    weight: Any = None
    longest: int = 0
    """Largest number of entries of a row."""

    @property
    def pieces(self) -> int:
        """Upper bound of the number of segments of long rows."""
        return 2 * -(-self.entries // PIECE) if self.longest > PIECE else 0


def into(a: Any, **more: Any) -> Rows:
    """Return the entries of each destination (CSC)."""
    return Rows(a.num_dst, a.num_entries, a.in_offsets, longest=a.graph.longest("in"), **more)


def out_of(a: Any, **more: Any) -> Rows:
    """Return the entries of each source (CSR)."""
    return Rows(a.num_src, a.num_entries, a.out_offsets, longest=a.graph.longest("out"), **more)


def of_edges(a: Any, **more: Any) -> Rows:
    """Return the entries of each edge."""
    return Rows(a.num_edges, a.num_entries, a.id_offsets, longest=a.graph.longest("id"), **more)


@dataclass(frozen=True)
class Columns:
    """Columns of an array, from `first`; `lead` is the leading dimension."""

    array: Any
    lead: int
    first: int


def lanes_of(width: int) -> int:
    """Return the number of lanes that process a row of this width."""
    return min(32, max(4, 1 << (width - 1).bit_length()))


def blocks(units: int, lanes: int) -> int:
    return -(-units * lanes // THREADS)


def _launch(rt: Runtime, kernel: str, dtype: Any, rows: Rows, width: int, *args: Any) -> None:
    """Launch a kernel for the segments of long rows, then for the rows."""
    lanes = lanes_of(width)
    chunks = -(-width // 128) if lanes == 32 and kernel != "dot_rows" else 1
    for pieces, units in ((1, rows.pieces), (0, rows.count)):
        grid = blocks(units, lanes), chunks
        every = (pieces, rows.count, rows.entries, rows.offsets, *args)
        rt.launch("neighbours", kernel, dtype, grid, THREADS, every, LANES=lanes)


def add(
    rt: Runtime,
    rows: Rows,
    table: Columns,
    width: int,
    out: Columns,
    accumulate: bool,
    *,
    mean: bool = False,
    by_table: Any = None,
    winners: Any = None,
    places: Any = None,
    back: bool = False,
    lead: int = 0,
) -> None:
    """out (+)= the sums over the rows, see `sum_rows`."""
    partial = rt.empty((rows.pieces, width), "float64")
    _launch(
        rt, "sum_rows", out.array.dtype, rows, width, rows.nodes, rows.edges, rows.weighted,
        rows.weight, by_table, mean, winners, places, back, lead, table.array, table.lead,
        table.first, width, partial, accumulate, out.array, out.lead, out.first,
    )  # fmt: skip


def win(
    rt: Runtime,
    rows: Rows,
    most: bool,
    values: Any,
    width: int,
    out: Columns,
    accumulate: bool,
    winners: Any = None,
) -> None:
    """out (+)= the column-wise maximum or minimum, and the entries that attain it."""
    partial = rt.empty((rows.pieces, width), values.dtype)
    firsts = rt.empty((rows.pieces, width), "int64")
    _launch(
        rt, "win_rows", values.dtype, rows, width, rows.nodes, rows.edges, rows.weighted,
        rows.weight, most, values, width, partial, firsts, accumulate, out.array, out.lead,
        out.first, winners,
    )  # fmt: skip


def dot(
    rt: Runtime,
    rows: Rows,
    places: Any,
    owners: Any,
    in_offsets: Any,
    mean: bool,
    winners: Any,
    gradient: Columns,
    values: Any,
    width: int,
    out: Any,
    accumulate: bool,
) -> None:
    """out (+)= the products of the table rows of entries with those of their destinations."""
    partial = rt.empty(rows.pieces, "float64")
    _launch(
        rt, "dot_rows", values.dtype, rows, width, places, rows.nodes, owners, in_offsets, mean,
        winners, gradient.lead, gradient.first, values, width, gradient.array, partial, accumulate,
        out,
    )  # fmt: skip


def take(rt: Runtime, rows: Rows, places: Any, table: Any, out: Columns, accumulate: bool) -> None:
    """out (+)= the table row of each entry, gathered and stored at its place."""
    width = table.shape[1]
    lanes = lanes_of(width)
    grid = blocks(rows.entries, lanes), -(-width // 128) if lanes == 32 else 1
    args = (
        rows.entries, rows.nodes, rows.edges, places, table, width, accumulate, out.array, out.lead,
        out.first,
    )  # fmt: skip
    rt.launch("neighbours", "take_rows", table.dtype, grid, THREADS, args, LANES=lanes)


def owners(a: Any) -> Any:
    """Return the destination of each entry in CSC order, 1-based."""
    return a.graph._index("in_rows")


def along(a: Any, owners: Any) -> tuple[Any, Any]:
    """Return destinations and edges of the entries of each edge, in edge order."""
    order = a.id_entries[: a.num_entries] - 1
    return owners[order], a.in_edges[order]
