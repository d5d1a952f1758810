"""Graphs from and to the forms of other libraries: pairs of nodes, sparse matrices, meshes."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

from ._call.indices import Indices, check_indices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .graph import Graph


class SparseMatrix(Protocol):
    """Sparse matrix or array of SciPy."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def tocsr(self) -> Compressed: ...


class Compressed(Protocol):
    """Sparse matrix or array of SciPy in CSR form."""

    data: npt.NDArray[np.generic]
    indices: Indices
    indptr: Indices


def rows_of(edge_index: npt.ArrayLike) -> tuple[Indices, Indices]:
    """Return sources and destinations, the rows of an array of shape (2, num_edges)."""
    label = "Graph.from_edge_index: edge_index"
    shape = getattr(edge_index, "shape", None)
    shape = tuple(np.shape(edge_index) if shape is None else shape)
    if len(shape) != 2 or shape[0] != 2:
        raise ValueError(f"{label}: expected shape (2, num_edges), got {shape}")
    src, dst = cast("Sequence[npt.ArrayLike]", edge_index)
    return check_indices(f"{label}[0]", src), check_indices(f"{label}[1]", dst)


def compressed(matrix: SparseMatrix) -> tuple[Indices, Indices, int]:
    """Return offsets and columns of the rows of a sparse matrix, and the number of columns."""
    if not hasattr(matrix, "tocsr"):
        raise TypeError(
            "Graph.from_scipy: matrix: expected a sparse matrix or array of SciPy, got "
            f"{type(matrix).__name__}"
        )
    if len(matrix.shape) != 2:
        raise ValueError(f"Graph.from_scipy: matrix: expected 2 axes, got shape {matrix.shape}")
    rows = matrix.tocsr()
    return rows.indptr, rows.indices, matrix.shape[1]


FEW_CELLS, MANY_NODES = 10, 27
"""So few rows of so many columns are columns of cells, which would give a wrong graph."""


def neighbours_in(cells: object) -> tuple[Indices, Indices]:
    """Return all pairs of different nodes that share a cell, in both directions, once each."""
    keys = [np.empty(0, np.int64)]
    for number, block in enumerate(_blocks(cells)):
        label = f"Graph.from_cells: cells[{number}]"
        try:
            nodes = np.asarray(block)
        except ValueError:
            raise ValueError(f"{label}: expected cells of as many nodes, got others") from None
        if nodes.ndim != 2:
            expected = "(num_cells, nodes_of_cell)"
            raise ValueError(f"{label}: expected shape {expected}, got {nodes.shape}")
        if nodes.shape[0] <= FEW_CELLS and nodes.shape[1] > MANY_NODES:
            raise ValueError(
                f"{label}: expected shape (num_cells, nodes_of_cell), got {nodes.shape}: pass the "
                "transpose of an array that has a column for each cell"
            )
        count = nodes.shape[1]
        nodes = check_indices(label, nodes.reshape(-1)).reshape(-1, count).astype(np.int64)
        if nodes.min(initial=0) < 0:
            raise IndexError(f"{label}: expected nodes >= 0, got {nodes.min()}")
        if nodes.max(initial=0) >= 2**31 - 1:
            raise OverflowError(f"{label}: expected nodes below 2**31 - 1, got {nodes.max()}")
        one, other = np.nonzero(~np.eye(count, dtype=bool))
        src, dst = nodes[:, one], nodes[:, other]
        keys.append((dst << 32 | src)[src != dst])
    dst, src = np.divmod(np.unique(np.concatenate(keys)), 1 << 32)
    return src, dst


def _blocks(cells: object) -> list[object]:
    """Return arrays of cells: one, those of a sequence, or those of a mesh or cells of meshio."""
    cells = getattr(cells, "cells", cells)
    if hasattr(cells, "ndim"):
        return [cells]
    try:
        several = [
            block if hasattr(block, "ndim") else getattr(block, "data", block)
            for block in cast("Iterable[npt.ArrayLike]", cells)
        ]
    except TypeError:
        raise TypeError(
            f"Graph.from_cells: cells: expected arrays of nodes, got {type(cells).__name__}"
        ) from None
    return [several] if several and np.ndim(several[0]) == 1 else several


def to_scipy(graph: Graph, values: npt.ArrayLike | None) -> SparseMatrix:
    """Return the CSR array of a graph, see `Graph.to_scipy`."""
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise ImportError(f"Graph.to_scipy: this needs SciPy: {error}") from error
    data = np.ones(graph.num_edges) if values is None else np.asarray(values)
    if data.shape != (graph.num_edges,):
        raise ValueError(
            f"Graph.to_scipy: values: expected shape (num_edges,) = ({graph.num_edges},), "
            f"got {data.shape}"
        )
    offsets, nodes, edges = (
        graph._index(f"in_{name}") - 1 for name in ("offsets", "nodes", "edges")
    )
    shape = graph.num_dst, graph.num_src
    return cast("SparseMatrix", csr_array((data[edges], nodes, offsets), shape))


def to_html(graph: Graph) -> str:
    """Return a table of the sizes of a graph and of its degrees."""
    degrees = graph.in_degrees()
    rows = {
        "source nodes": graph.num_src,
        "destination nodes": graph.num_dst,
        "edges": graph.num_edges,
        "entries": graph.num_entries,
        "edges into a node": f"{degrees.mean():.1f} on average, at most {degrees.max()}"
        if len(degrees)
        else "",
    }
    if graph.num_entries == graph.num_edges:
        del rows["entries"]
    lines = (
        f"<tr><th style='text-align:left'>{name}</th><td>{value}</td></tr>"
        for name, value in rows.items()
    )
    title = html.escape(type(graph).__name__)
    return f"<table><caption>{title}</caption>{''.join(lines)}</table>"
