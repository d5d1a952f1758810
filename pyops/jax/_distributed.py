"""Graphs whose nodes and edges are distributed over devices, in arrays of one shape on each.

Most of the module is one class, `DistributedGraph`, and its documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from .._call.indices import check_bounds, check_count, check_indices
from ._devices import check_varying, rank_inside
from ._exchange import accumulated, check_length, exchanged, masked
from ._graph import Graph
from ._ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from jax.sharding import Mesh

    from ..distributed._mpi import Values


class Layout(NamedTuple):
    """Static part of a distributed graph; sizes are those of each device, with padding."""

    mesh: Mesh
    axis: str
    size: int
    """Number of devices along the axis."""
    num_src: int
    num_dst: int
    num_entries: int
    num_edges: int
    shared: bool
    """Whether all devices have the same rows of edges."""
    halo: int
    """Most rows that a device needs of another."""
    pair_nodes: int
    """Nodes of the edges for operators on pairs of edges, and two for padding; 0 without them."""


class Leaves(NamedTuple):
    """Arrays of a distributed graph: blocks of all devices, one after another.

    Local sources are the own rows, a row of zeros for edges that are padding, and as many rows from
    each device as the most that a device needs of another. The last of the local destinations is
    that of the edges that are padding.
    """

    src: jax.Array
    dst: jax.Array
    ids: jax.Array | None
    send: jax.Array
    """Own rows for each device; num_src for padding."""
    degrees: jax.Array
    """Out-degree of each local source on this device and on all."""
    sources: jax.Array
    """Number of each own source, -1 for padding."""
    destinations: jax.Array
    entries: jax.Array
    pairs: tuple[jax.Array, jax.Array, jax.Array] | None
    """Ends of the own edges and of those out of own nodes, and own edges for each device."""
    reverse: jax.Array | None


@jax.tree_util.register_pytree_node_class
class DistributedGraph:
    """Graph whose nodes and edges are distributed over devices, made by `pyops.jax.distribute`.

    A pytree whose arrays hold a block for each device: pass it to `jax.shard_map` with
    ``PartitionSpec(axis)``. In there, operators take it in place of a graph, with arrays of the
    device's own rows: `num_src`, `num_dst` and `num_edges` are their numbers, the same on all
    devices. Rows that a device lacks are padding, which follows its rows: whatever inputs have
    there does not matter, and results are zero there.

    Rows of other devices are fetched, and in the backward pass added to those of their owners.
    Inputs whose rows are no nodes or edges, such as parameters, are the same on all devices:
    ``PartitionSpec()``.
    """

    _leaves: Leaves
    _layout: Layout

    def __init__(self) -> None:
        raise TypeError("DistributedGraph: made by pyops.jax.distribute alone")

    @classmethod
    def _of(cls, leaves: Leaves, layout: Layout) -> DistributedGraph:
        graph = object.__new__(cls)
        graph._leaves, graph._layout = leaves, layout
        return graph

    def tree_flatten(self) -> tuple[tuple[Leaves], Layout]:
        return (self._leaves,), self._layout

    @classmethod
    def tree_unflatten(cls, layout: Layout, leaves: tuple[Leaves]) -> DistributedGraph:
        return cls._of(leaves[0], layout)

    def __repr__(self) -> str:
        layout = self._layout
        return (
            f"DistributedGraph(num_src={layout.num_src}, num_dst={layout.num_dst}, "
            f"num_edges={layout.num_edges}, axis={layout.axis!r}, size={layout.size})"
        )

    @property
    def num_src(self) -> int:
        """Number of rows of a device for source nodes, with padding."""
        return self._layout.num_src

    @property
    def num_dst(self) -> int:
        """Number of rows of a device for destination nodes, with padding."""
        return self._layout.num_dst

    @property
    def num_entries(self) -> int:
        """Number of entries (source, destination) of a device, with padding."""
        return self._layout.num_entries

    @property
    def num_edges(self) -> int:
        """Number of rows of edge arrays of a device, with padding."""
        return self._layout.num_edges

    @property
    def reverse(self) -> jax.Array:
        """The option `reverse` of operators on pairs of edges, if `distribute` was given it."""
        if self._leaves.reverse is None:
            raise ValueError(
                "DistributedGraph.reverse: expected a graph made with `reverse`, got one without"
            )
        return self._leaves.reverse

    @property
    def local(self) -> Graph:
        """Graph of the own edges, inside `jax.shard_map`; padding is at its last destination.

        Its sources are the rows that `exchange` returns, its destinations `num_dst` own rows and
        one for padding.
        """
        self._check_inside("DistributedGraph.local")
        layout, leaves = self._layout, self._leaves
        indices: tuple[jax.Array, ...] = (leaves.src, leaves.dst)
        if leaves.ids is not None:
            indices += (leaves.ids,)
        rows = layout.num_edges + layout.shared
        sizes = (self._num_local, layout.num_dst + 1, rows)
        return Graph.tree_unflatten(sizes, indices)

    @property
    def _num_local(self) -> int:
        return self.num_src + 1 + self._layout.size * self._layout.halo

    def rows(self, axis: str) -> jax.Array:
        """Return the number of the node or edge of each row, -1 for padding.

        Parameters
        ----------
        axis : {"num_src", "num_dst", "num_entries", "num_edges"}
            Axis of arrays, as declared by the operators. Edges are numbered through all processes.

        Returns
        -------
        array of int32
            Inside `jax.shard_map` of the own rows, else of all.
        """
        label = "DistributedGraph.rows: axis"
        named = self._numbers()
        if axis not in named:
            raise ValueError(f"{label}: expected one of {', '.join(named)}, got {axis!r}")
        return named[axis]

    def _numbers(self) -> dict[str, jax.Array]:
        """Return the numbers of rows by the name of the axes that are distributed."""
        leaves = self._leaves
        named = {
            "num_src": leaves.sources,
            "num_dst": leaves.destinations,
            "num_entries": leaves.entries,
        }
        return named if self._layout.shared else {**named, "num_edges": leaves.entries}

    def shard(self, values: npt.ArrayLike | jax.Array, axis: str) -> jax.Array:
        """Distribute rows over the devices, outside of compiled functions.

        Parameters
        ----------
        values : array_like, shape (n, ...)
            A row for each node, or each edge in the order given to `distribute`. If there are
            several processes, for the nodes of this process, in ascending order, or its edges.
        axis : {"num_src", "num_dst", "num_entries", "num_edges"}
            Axis of the rows, as declared by the operators.

        Returns
        -------
        array, shape (devices * rows of a device, ...)
            Sharded over the axis of the mesh, with zeros for padding.
        """
        caller = "DistributedGraph.shard"
        ranks, numbers = self._outside(caller, axis)

        def check() -> Values:
            if isinstance(values, jax.core.Tracer):
                raise TypeError(f"{caller}: values: expected an array, got a tracer of JAX")
            array = np.asarray(values)
            if array.dtype == object:
                raise TypeError(f"{caller}: values: expected an array of numbers, got objects")
            count = sum(int((own >= 0).sum()) for own in numbers.values())
            if array.ndim == 0 or len(array) != count:
                got = f"{len(array)} rows" if array.ndim else "a scalar"
                raise ValueError(f"{caller}: values: expected {count} rows for {axis}, got {got}")
            return array

        array = ranks.together(check)
        return ranks.spread(
            {r: _padded(array[at], len(numbers[r])) for r, at in _places(numbers).items()}
        )

    def gather(self, array: jax.Array, axis: str) -> Values:
        """Return the rows of all devices in the order that `shard` takes, as a NumPy array.

        Parameters
        ----------
        array : array, shape (devices * rows of a device, ...)
            Result of a function under `jax.shard_map`, sharded over the axis of the mesh.
        axis : {"num_src", "num_dst", "num_entries", "num_edges"}
            Axis of the rows.

        Returns
        -------
        array, shape (n, ...)
            If there are several processes, the rows of this process.
        """
        caller = "DistributedGraph.gather"
        ranks, numbers = self._outside(caller, axis)
        length = len(next(iter(numbers.values())))

        def check() -> Mapping[int, Values]:
            if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
                got = type(array).__name__
                raise TypeError(f"{caller}: array: expected a jax.Array, got {got}")
            expected = ranks.size * length
            if array.ndim == 0 or array.shape[0] != expected:
                raise ValueError(
                    f"{caller}: array: expected {expected} rows for {axis}, got shape {array.shape}"
                )
            if array.is_fully_addressable:
                whole = np.asarray(array).reshape(ranks.size, length, *array.shape[1:])
                return {r: whole[r] for r in ranks.own}
            if not array.sharding.is_equivalent_to(ranks.sharding, array.ndim):
                raise ValueError(
                    f"{caller}: array: expected rows sharded over the mesh axis "
                    f"{ranks.axis!r} alone, got {array.sharding}"
                )
            return ranks.blocks(array)

        blocks = ranks.together(check)
        places = _places(numbers)
        some = next(iter(blocks.values()))
        found = np.empty((sum(map(len, places.values())), *some.shape[1:]), some.dtype)
        for rank, at in places.items():
            found[at] = blocks[rank][: len(at)]
        return found

    def _outside(self, caller: str, axis: str) -> tuple[Ranks, Mapping[int, Values]]:
        """Return the ranks, and the numbers of the rows of those of this process."""
        numbers = self.rows(axis)
        if isinstance(numbers, jax.core.Tracer):
            raise ValueError(
                f"{caller}: graph: expected a call outside of functions that JAX transforms, "
                "got one inside"
            )
        ranks = Ranks(self._layout.mesh, self._layout.axis)
        return ranks, ranks.blocks(numbers)

    def with_edge_ids(self, edge_ids: npt.ArrayLike, num_edges: int) -> DistributedGraph:
        """Return a graph of the same entries whose edge arrays have rows that all devices share.

        Gradients of edge arrays are then sums over devices, as those of parameters.

        Parameters
        ----------
        edge_ids : array_like of int32 or int64, shape (entries of this process,)
            Row of each entry, such as its type, in the order given to `distribute`; ids may repeat.
        num_edges : int
            Number of rows of the edge arrays, the same in all processes.
        """
        caller = "DistributedGraph.with_edge_ids"
        ranks, numbers = self._outside(caller, "num_entries")

        def check() -> tuple[Values, int]:
            count = sum(int((own >= 0).sum()) for own in numbers.values())
            ids = check_indices(f"{caller}: edge_ids", edge_ids)
            if len(ids) != count:
                raise ValueError(f"{caller}: edge_ids: expected length {count}, got {len(ids)}")
            rows = check_count(f"{caller}: num_edges", num_edges)
            check_bounds(f"{caller}: edge_ids", ids, rows, "num_edges")
            return ids.astype(np.int32), rows

        ids, rows = ranks.together(check)
        sizes = ranks.gather(dict.fromkeys(ranks.own, np.array([rows])))
        if (sizes != rows).any():
            raise ValueError(
                f"{caller}: num_edges: expected the same in all processes, "
                f"got {sorted(set(sizes[:, 0].tolist()))}"
            )
        spread = ranks.spread(
            {r: _padded(ids[at], len(numbers[r]), rows) for r, at in _places(numbers).items()}
        )
        leaves = self._leaves._replace(ids=spread, pairs=None, reverse=None)
        return self._of(leaves, self._layout._replace(num_edges=rows, shared=True, pair_nodes=0))

    def exchange(self, x: jax.Array) -> jax.Array:
        """Return the rows of all local sources, inside `jax.shard_map`.

        Its transpose is `accumulate`: the backward pass of each is the other.

        Parameters
        ----------
        x : array, shape (num_src, ...)
            Own rows.

        Returns
        -------
        array, shape (local sources, ...)
            Rows as the sources of `local` are numbered: own rows, a row of zeros, and rows of other
            devices. Padding is zero.
        """
        caller = "DistributedGraph.exchange"
        self._check_inside(caller)
        check_length(f"{caller}: x", x, "num_src", self.num_src)
        own = [masked(x, self._leaves.sources >= 0)]
        return exchanged(own, self._leaves.send, self._layout.axis)[0]

    def accumulate(self, full: jax.Array) -> jax.Array:
        """Return own rows to which the rows of the same sources on other devices were added.

        Parameters
        ----------
        full : array, shape (local sources, ...)
            A row for each local source.

        Returns
        -------
        array, shape (num_src, ...)
            Padding is zero.
        """
        caller = "DistributedGraph.accumulate"
        self._check_inside(caller)
        check_length(f"{caller}: full", full, "local sources", self._num_local)
        found = accumulated(full, self._leaves.send, self.num_src, self._layout.axis)
        return masked(found, self._leaves.sources >= 0)

    def _check_inside(self, caller: str) -> None:
        """Check that the arrays are the blocks of this device."""
        layout = self._layout
        label = f"{caller}: graph"
        rank_inside(label, layout.axis, "over which the graph is distributed, ")
        size = jax.lax.axis_size(layout.axis)
        if size != layout.size:
            raise ValueError(
                f"{label}: expected the mesh axis {layout.axis!r} with the "
                f"{layout.size} devices of the graph, got {size}"
            )
        if self._leaves.send.shape[0] != size or self._leaves.src.shape != (layout.num_entries,):
            raise ValueError(
                f"{label}: expected the block of a device, got those of all: pass the "
                f"graph as an argument of jax.shard_map, with PartitionSpec({layout.axis!r}) "
                "in in_specs"
            )
        check_varying(label, layout.axis, self._leaves.send)


def _places(numbers: Mapping[int, Values]) -> dict[int, Values]:
    """Return, for each rank of this process, where its rows are among those of the process."""
    own = {rank: rows[rows >= 0] for rank, rows in numbers.items()}
    ordered = np.sort(np.concatenate([*own.values()]))
    return {rank: np.searchsorted(ordered, rows) for rank, rows in own.items()}


def _padded(rows: Values, length: int, value: int = 0) -> Values:
    found = np.full((length, *rows.shape[1:]), value, rows.dtype)
    found[: len(rows)] = rows
    return found
