"""Sparse graphs: index arrays checked and packed once into the CSR/CSC form of the kernels.

Most of the module is one class, `Graph`, and its documentation.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._call.backends import load_device
from ._call.eager import eager
from ._call.indices import (
    MOST_EDGES,
    Indices,
    check_bounds,
    check_count,
    check_indices,
    check_offsets,
    frozen,
    pack_rows,
    take_ends,
)
from ._graph_conversions import compressed, neighbours_in, rows_of, to_html, to_scipy

if TYPE_CHECKING:
    from ._graph_conversions import SparseMatrix
    from .cuda import DeviceGraph


class Sizes(NamedTuple):
    """Sizes of a graph that kernels take."""

    num_src: int
    num_dst: int
    num_edges: int
    num_entries: int
    shared_edges: int


class Graph:
    """A directed graph from source to destination nodes; entry e is the edge src[e] -> dst[e].

    Indices are 0-based. Duplicate entries between the same nodes and self loops are allowed. Rows
    of edge arrays are in the order of the entries.

    Parameters
    ----------
    src, dst : array_like of int32 or int64, shape (num_entries,)
        Source and destination node of each entry.
    num_src, num_dst : int, optional
        Numbers of nodes. If only one is given, the other is the same. If none is given, both are
        one more than the largest index.

    Raises
    ------
    TypeError
        If the indices are not int32 or int64.
    ValueError
        If shapes or sizes do not fit.
    IndexError
        If an index is negative or not below the number of nodes.
    OverflowError
        If there are more than 2**31 - 2 nodes.

    Examples
    --------
    >>> pyops.Graph([0, 1, 2], [1, 2, 0])
    Graph(num_src=3, num_dst=3, num_edges=3)
    """

    __slots__ = (
        "_copies",
        "_dst",
        "_ids",
        "_num_dst",
        "_num_edges",
        "_num_src",
        "_numbers",
        "_packed",
        "_ready",
        "_src",
    )
    _src: Indices
    _dst: Indices
    _ids: Indices | None
    _num_src: int
    _num_dst: int
    _num_edges: int
    _numbers: Sizes | None
    _packed: dict[str, Indices]
    _ready: dict[tuple[str, ...], tuple[Indices, ...]]
    _copies: dict[tuple[str, ...], Any]
    """The graph as front ends hold it, by their names; the last row numbers of options."""

    @eager
    def __init__(
        self,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        num_src: int | None = None,
        num_dst: int | None = None,
    ) -> None:
        if hasattr(self, "_packed"):
            raise AttributeError("Graph is immutable: it cannot be initialised again")
        src = check_indices("Graph: src", src)
        dst = check_indices("Graph: dst", dst)
        if len(src) != len(dst):
            raise ValueError(
                f"Graph: src and dst: expected equal lengths, got {len(src)} and {len(dst)}"
            )
        if num_src is None and num_dst is None:
            num_src = 1 + max(int(ends.max(initial=-1)) for ends in (src, dst))
        num_src = check_count("Graph: num_src", num_dst if num_src is None else num_src)
        num_dst = check_count("Graph: num_dst", num_src if num_dst is None else num_dst)
        self._fill("Graph", src, dst, None, num_src, num_dst, len(src))

    @classmethod
    @eager
    def from_csc(
        cls,
        offsets: npt.ArrayLike,
        indices: npt.ArrayLike,
        num_src: int,
        edge_ids: npt.ArrayLike | None = None,
        num_edges: int | None = None,
    ) -> Graph:
        """Build a graph from the incoming entries of each destination (CSC).

        Parameters
        ----------
        offsets : array_like of int32 or int64, shape (num_dst + 1,)
            The entries into destination i are those from offsets[i] to offsets[i + 1] - 1.
        indices : array_like of int32 or int64, shape (num_entries,)
            Source node of each entry.
        num_src : int
            Number of source nodes.
        edge_ids : array_like of int32 or int64, shape (num_entries,), optional
            Row of the edge arrays of each entry. Ids may repeat, such as for an undirected edge
            whose two directions share one row. If not given, entry k has row k.
        num_edges : int, optional
            Number of rows of the edge arrays; by default one more than the largest id.

        Returns
        -------
        Graph

        Raises
        ------
        TypeError, ValueError, IndexError, OverflowError
            As for the constructor; ValueError also for offsets that decrease, do not start at
            0 or do not end at the number of entries.
        """
        offsets = check_indices("Graph.from_csc: offsets", offsets)
        indices = check_indices("Graph.from_csc: indices", indices)
        check_offsets("Graph.from_csc: offsets", offsets, len(indices))
        num_dst = check_count("Graph.from_csc: len(offsets) - 1", len(offsets) - 1)
        num_src = check_count("Graph.from_csc: num_src", num_src)
        ids = None
        if edge_ids is not None:
            ids = check_indices("Graph.from_csc: edge_ids", edge_ids)
            if len(ids) != len(indices):
                raise ValueError(
                    "Graph.from_csc: edge_ids: expected length len(indices)="
                    f"{len(indices)}, got {len(ids)}"
                )
        least = len(indices) if ids is None else 1 + int(ids.max(initial=-1))
        requested = least if num_edges is None else num_edges
        rows = check_count("Graph.from_csc: num_edges", requested, MOST_EDGES)
        if ids is None and rows != len(indices):
            raise ValueError(
                "Graph.from_csc: num_edges: expected len(indices)="
                f"{len(indices)} without edge_ids, got {rows}"
            )
        graph = cls.__new__(cls)
        dst = np.repeat(np.arange(num_dst, dtype=np.int32), np.diff(offsets))
        graph._fill("Graph.from_csc", indices, dst, ids, num_src, num_dst, rows)
        return graph

    @classmethod
    @eager
    def from_edge_index(
        cls,
        edge_index: npt.ArrayLike,
        num_src: int | None = None,
        num_dst: int | None = None,
    ) -> Graph:
        """Build a graph from the pairs of nodes of PyTorch Geometric.

        Parameters
        ----------
        edge_index : array_like of int32 or int64, shape (2, num_edges)
            Source and destination node of each edge.
        num_src, num_dst : int, optional
            Numbers of nodes, as for the constructor.

        Returns
        -------
        Graph

        Raises
        ------
        TypeError, ValueError, IndexError, OverflowError
            As for the constructor.

        Examples
        --------
        >>> pyops.Graph.from_edge_index([[0, 1, 2], [1, 2, 0]])
        Graph(num_src=3, num_dst=3, num_edges=3)
        """
        return cls(*rows_of(edge_index), num_src, num_dst)

    @classmethod
    @eager
    def from_scipy(cls, matrix: SparseMatrix) -> Graph:
        """Build a graph whose edges run from the columns to the rows of a sparse matrix.

        Edges are numbered as the stored entries of ``matrix.tocsr()``, whose values are the weights
        with which ``pyops.aggregate(graph, x, weight=matrix.tocsr().data)`` is
        ``matrix @ x``. For a graph of networkx: ``networkx.to_scipy_sparse_array(graph).T``, as
        entry (i, j) of its matrix is the edge i -> j.

        Parameters
        ----------
        matrix : sparse matrix or array of SciPy, shape (num_dst, num_src)
            Explicit zeros are edges.

        Returns
        -------
        Graph

        Raises
        ------
        TypeError, ValueError
            If `matrix` is not a sparse matrix of two axes.
        """
        return cls.from_csc(*compressed(matrix))

    @classmethod
    @eager
    def from_cells(cls, cells: object, num_nodes: int | None = None) -> Graph:
        """Build the graph of a mesh, with an edge between any two nodes that share a cell.

        Each pair of different nodes has one edge in either direction, in the order of destinations,
        then of sources: the pattern of the off-diagonal entries of a matrix of finite elements
        whose degrees of freedom are these nodes.

        Parameters
        ----------
        cells : array_like of int, shape (num_cells, nodes_of_cell), or several
            Nodes of each cell. Cells of different types are a sequence of such arrays, or the
            cells of meshio, ``mesh.cells``.
        num_nodes : int, optional
            Number of nodes; by default one more than the largest index.

        Returns
        -------
        Graph

        Raises
        ------
        TypeError, ValueError, IndexError, OverflowError
            As for the constructor.

        Examples
        --------
        >>> pyops.Graph.from_cells([[0, 1, 2], [2, 1, 3]])
        Graph(num_src=4, num_dst=4, num_edges=10)
        """
        return cls(*neighbours_in(cells), num_nodes)

    def _fill(
        self,
        caller: str,
        src: Indices,
        dst: Indices,
        ids: Indices | None,
        num_src: int,
        num_dst: int,
        num_edges: int,
    ) -> None:
        first = "src" if caller == "Graph" else "indices"
        rows = ("num_edges", num_edges) if ids is None else ("edge_ids", len(ids))
        for name, length in (("dst", len(dst)), rows):
            if length != len(src):
                raise ValueError(
                    f"{caller}: {name}: expected len({first})={len(src)}, got {length}"
                )
        check_bounds(f"{caller}: {first}", src, num_src, "num_src")
        check_bounds(f"{caller}: dst", dst, num_dst, "num_dst")
        if ids is not None:
            check_bounds(f"{caller}: edge_ids", ids, num_edges, "num_edges")
        fields: dict[str, object] = {
            "_src": frozen(src, np.int32),
            "_dst": frozen(dst, np.int32),
            "_ids": None if ids is None else frozen(ids, np.int64),
            "_num_src": num_src,
            "_num_dst": num_dst,
            "_num_edges": num_edges,
            "_numbers": None,
            "_packed": {},
            "_ready": {},
            "_copies": {},
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to set an attribute."""
        raise AttributeError(f"Graph is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Refuse to delete an attribute."""
        raise AttributeError(f"Graph is immutable: {name} cannot be deleted")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle entries, edge ids and sizes; packed index arrays are recomputed."""
        sizes = (self._num_src, self._num_dst, self._num_edges)
        return _restored, (type(self), self._src, self._dst, self._ids, *sizes)

    _here = staticmethod(contextlib.nullcontext)

    def __repr__(self) -> str:
        """Return the sizes of the graph as text."""
        shared = f", num_entries={self.num_entries}" if self.num_entries != self.num_edges else ""
        return (
            f"Graph(num_src={self.num_src}, num_dst={self.num_dst}, "
            f"num_edges={self.num_edges}{shared})"
        )

    def _repr_html_(self) -> str:
        """Return sizes and degrees as a table, for notebooks."""
        return to_html(self)

    def __eq__(self, other: object) -> bool:
        """Return whether another graph has the same sizes and entries, in the same order."""
        if not isinstance(other, Graph):
            return NotImplemented
        return self is other or (
            self._counts() == other._counts()
            and np.array_equal(self._src, other._src)
            and np.array_equal(self._dst, other._dst)
            and (self._ids is other._ids or np.array_equal(self.edge_ids, other.edge_ids))
        )

    def __hash__(self) -> int:
        """Return a hash of the sizes and of a sample of the entries."""
        step = max(1, self.num_entries // 16)
        return hash((self._counts(), self._src[::step].tobytes(), self._dst[::step].tobytes()))

    def _counts(self) -> tuple[int, int, int, int]:
        return self._num_src, self._num_dst, self._num_edges, self.num_entries

    @property
    def num_src(self) -> int:
        """Number of source nodes."""
        return self._num_src

    @property
    def num_dst(self) -> int:
        """Number of destination nodes."""
        return self._num_dst

    @property
    def num_edges(self) -> int:
        """Number of rows of edge arrays."""
        return self._num_edges

    @property
    def num_entries(self) -> int:
        """Number of entries (source, destination); larger than num_edges if ids are shared."""
        return len(self._src)

    @property
    def src(self) -> Indices:
        """Source node of each entry, int32 [num_entries]; read-only."""
        return self._src[:]

    @property
    def dst(self) -> Indices:
        """Destination node of each entry, int32 [num_entries]; read-only."""
        return self._dst[:]

    @property
    def edge_ids(self) -> Indices:
        """Row of the edge arrays of each entry, int64 [num_entries]; read-only."""
        if self._ids is None:
            return frozen(np.arange(self.num_entries), np.int64)
        return self._ids[:]

    @eager
    def in_degrees(self) -> Indices:
        """Return the number of entries into each destination, int64 [num_dst]."""
        return np.diff(self._index("in_offsets"))

    @eager
    def reverse(self) -> Graph:
        """Return the graph with the direction of all entries reversed; edge ids are unchanged."""
        graph = type(self).__new__(type(self))
        sizes = (self._num_dst, self._num_src, self._num_edges)
        graph._fill("Graph", self._dst, self._src, self._ids, *sizes)
        swap = {"in": "out", "out": "in"}
        for name, array in list(self._packed.items()):
            side, _, rest = name.partition("_")
            if side in swap and rest != "entries":
                graph._packed[f"{swap[side]}_{rest}"] = array
        return graph

    @eager
    def with_edge_ids(self, edge_ids: npt.ArrayLike, num_edges: int | None = None) -> Graph:
        """Return a graph of the same entries with other edge ids.

        Parameters
        ----------
        edge_ids : array_like of int32 or int64, shape (num_entries,)
            Row of the edge arrays of each entry, such as its type; ids may repeat.
        num_edges : int, optional
            Number of rows of the edge arrays; by default one more than the largest id.
        """
        caller = "Graph.with_edge_ids"
        ids = check_indices(f"{caller}: edge_ids", edge_ids)
        if len(ids) != self.num_entries:
            raise ValueError(
                f"{caller}: edge_ids: expected length num_entries={self.num_entries}, "
                f"got {len(ids)}"
            )
        requested = 1 + int(ids.max(initial=-1)) if num_edges is None else num_edges
        rows = check_count(f"{caller}: num_edges", requested, MOST_EDGES)
        graph = type(self).__new__(type(self))
        graph._fill(caller, self._src, self._dst, ids, self._num_src, self._num_dst, rows)
        return graph

    @eager
    def to_scipy(self, values: npt.ArrayLike | None = None) -> SparseMatrix:
        """Return the graph as a sparse array with a row for each destination.

        Parameters
        ----------
        values : array_like, shape (num_edges,), optional
            Values of the edges, by default 1. Those of parallel edges stay separate entries.

        Returns
        -------
        scipy.sparse.csr_array, shape (num_dst, num_src)

        Raises
        ------
        ImportError
            If SciPy is not installed.
        ValueError
            If `values` has another shape.
        """
        return to_scipy(self, values)

    @eager
    def to_device(self, device: int | None = None) -> DeviceGraph:
        """Copy the graph to a CUDA device, for calls with arrays there.

        Parameters
        ----------
        device : int, optional
            Device number; by default CuPy's current one.

        Returns
        -------
        pyops.cuda.DeviceGraph

        Raises
        ------
        ImportError
            If CuPy is not installed, see `pip install "pyops-kernels[cuda]"`.
        RuntimeError
            If there is no driver or no device.
        TypeError, ValueError
            If `device` is not a device number.
        """
        return load_device().to_device(self, device)

    def _index(self, name: str) -> Indices:
        """Return an index array of the kernels, 1-based and built on first use.

        ``in_`` and ``out_`` arrays hold the entries of each destination and of each source (CSC and
        CSR): their offsets, the nodes at the other end and the edge ids. ``id_`` arrays hold the
        entries of each edge id, numbered in CSC order, ``out_entries`` those of each source;
        ``in_entries`` holds those of each destination numbered in CSR order, ``in_order`` in the
        order of the graph.
        """
        if name not in self._packed:
            side, _, rest = name.partition("_")
            if side == "id":
                self._pack_ids()
            elif rest == "entries":
                order, others = self._order(side), self._order("out" if side == "in" else "in")
                self._packed[name] = frozen(_inverse(others)[order - 1], np.int64)
            elif rest == "nodes":
                ends = (self._src, self._num_src) if side == "in" else (self._dst, self._num_dst)
                self._packed[name] = take_ends(self._order(side), *ends)
            elif rest == "edges" and self._ids is not None:
                self._packed[name] = frozen(self._ids[self._order(side) - 1] + 1, np.int64)
            elif rest == "edges":
                self._packed[name] = self._order(side)
            else:
                ends = (self._dst, self._num_dst) if side == "in" else (self._src, self._num_src)
                offsets, order = pack_rows(*ends)
                self._packed.update({f"{side}_offsets": offsets, f"{side}_order": order})
        return self._packed[name]

    def _order(self, side: str) -> Indices:
        """Return the entries of each destination, or source, as the graph numbers them."""
        return self._index(f"{side}_order")

    def _pack_ids(self) -> None:
        if self._ids is None:
            offsets = frozen(np.arange(1, self.num_entries + 2), np.int64)
            order = frozen(_inverse(self._order("in")), np.int64)
        else:
            offsets, order = pack_rows(self._index("in_edges") - 1, self._num_edges)
        self._packed.update(id_offsets=offsets, id_entries=order)

    def _indices(self, names: tuple[str, ...]) -> tuple[Indices, ...]:
        """Return the index arrays of a kernel, an empty one for ""; cached for all its calls."""
        found = self._ready.get(names)
        if found is None:
            found = self._ready[names] = tuple(self._index(n) if n else _EMPTY for n in names)
        return found

    def _sizes(self) -> Sizes:
        """Return the sizes that kernels take, computed on first use."""
        if self._numbers is None:
            shared = self._ids is not None and (np.diff(self._index("id_offsets")) > 1).any()
            object.__setattr__(self, "_numbers", Sizes(*self._counts(), int(shared)))
            assert self._numbers is not None
        return self._numbers


_EMPTY = np.empty(0, np.int64)


def _inverse(order: Indices) -> Indices:
    """Return the inverse of a 1-based permutation."""
    places = np.empty_like(order)
    places[order - 1] = np.arange(1, len(order) + 1)
    return places


def _restore(
    src: Indices, dst: Indices, ids: Indices | None, num_src: int, num_dst: int, num_edges: int
) -> Graph:
    """Return the graph of index arrays, checked like any other."""
    return _restored(Graph, src, dst, ids, num_src, num_dst, num_edges)


def _of_groups(group: Indices, groups: int) -> Graph:
    """Return a graph whose entries run from one source to their groups."""
    zeros = np.frombuffer(bytes(4 * len(group)), np.int32)
    return _restored(Graph, zeros, group, None, 1, groups, len(group))


def _restored(
    kind: type[Graph],
    src: Indices,
    dst: Indices,
    ids: Indices | None,
    num_src: int,
    num_dst: int,
    num_edges: int,
) -> Graph:
    """Restore a pickled graph of its class."""
    graph = kind.__new__(kind)
    graph._fill("Graph", src, dst, ids, num_src, num_dst, num_edges)
    return graph
