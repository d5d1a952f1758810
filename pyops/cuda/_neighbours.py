"""Sums and extremes over the entries of rows: launches of kernels/neighbours.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._runtime import Runtime

PIECE = 256
"""The entries of a piece of a long row, as in kernels/common.cuh."""
THREADS = 256


@dataclass(frozen=True)
class Rows:
    """The entries of rows: where rows begin, and the row of a table that each entry stands for."""

    count: int
    entries: int
    offsets: Any
    nodes: Any = None
    edges: Any = None
    weighted: Any = None
    weight: Any = None

    @property
    def pieces(self) -> int:
        """How many pieces long rows can have."""
        return 2 * -(-self.entries // PIECE) if self.entries > PIECE else 0


@dataclass(frozen=True)
class Columns:
    """Some columns of an array."""

    array: Any
    lead: int
    first: int


def lanes_of(width: int) -> int:
    """How many lanes have a row of this width."""
    return min(32, max(4, 1 << (width - 1).bit_length()))


def blocks(units: int, lanes: int) -> int:
    return -(-units * lanes // THREADS)


def _launch(rt: Runtime, kernel: str, dtype: Any, rows: Rows, width: int, *args: Any) -> None:
    """The pieces of long rows, then the rows."""
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
    """out (+)= the largest or smallest by columns, and which entries these are."""
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
    """out (+)= the products of the rows of entries with those of their destinations."""
    partial = rt.empty(rows.pieces, "float64")
    _launch(
        rt, "dot_rows", values.dtype, rows, width, places, rows.nodes, owners, in_offsets, mean,
        winners, gradient.lead, gradient.first, values, width, gradient.array, partial, accumulate,
        out,
    )  # fmt: skip


def owners(rt: Runtime, rows: int, entries: int, offsets: Any) -> Any:
    """The row of each entry, from 1."""
    found = rt.empty(entries, "int32")
    args = rows, offsets, found
    rt.launch("neighbours", "find_owners", "f", blocks(rows, 8), THREADS, args, LANES=8)
    return found


def along(a: Any, owners: Any) -> tuple[Any, Any]:
    """The destinations and the edges of the entries of each edge, in the order of the edges."""
    order = a.id_entries[: a.num_entries] - 1
    return owners[order], a.in_edges[order]
