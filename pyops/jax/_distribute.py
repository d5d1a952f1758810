"""Construction of graphs that are distributed over the devices of a mesh.

The steps of `distribute` share the tables of nodes and edges, so they are one module.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._call.arrays import kind_of
from .._call.indices import (
    LARGEST,
    check_bounds,
    check_count,
    check_indices,
    check_integers,
    check_turned,
)
from ._distributed import DistributedGraph, Layout, Leaves
from ._exchange import accumulated, exchanged
from ._graph import on_host
from ._ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..distributed._mpi import Values

CALLER = "distribute"


def distribute(
    src: npt.ArrayLike | jax.Array,
    dst: npt.ArrayLike | jax.Array,
    num_nodes: int,
    *,
    mesh: Mesh,
    axis: str = "ranks",
    part: npt.ArrayLike | None = None,
    ranges: Sequence[int] | None = None,
    num_src: int | None = None,
    part_src: npt.ArrayLike | None = None,
    ranges_src: Sequence[int] | None = None,
    pairs: bool = False,
    reverse: npt.ArrayLike | None = None,
) -> DistributedGraph:
    """Distribute a graph over the devices along an axis of a mesh.

    A device has nodes, and the edges into them. By default each has a range of nodes, and all
    ranges have equal lengths: those of device r begin at ``r * num_nodes // size``. If devices
    belong to several processes, all of these call the function, each with the edges into the nodes
    of its own devices; the other arguments are the same.

    Parameters
    ----------
    src, dst : array_like of int32 or int64, shape (entries of this process,)
        Numbers of source and destination of each entry.
    num_nodes : int
        Number of nodes, of all processes.
    mesh : jax.sharding.Mesh
        Mesh of CPU devices.
    axis : str
        Axis of the mesh over which the graph is distributed. Along any other axis devices have the
        same.
    part : array_like of int, shape (num_nodes,), optional
        Device of each node, counted along the axis, in a single process.
    ranges : sequence of int, optional
        First node of each device, and the number of nodes.
    num_src : int, optional
        Number of source nodes, if these are not the same nodes as the destinations.
    part_src, ranges_src : optional
        The same as `part` and `ranges` for these.
    pairs : bool
        Whether the graph is for operators on pairs of edges, `edge_to_edge` and
        `dimenet_aggregate`.
    reverse : array_like of int32 or int64, shape (entries of this process,), optional
        For `pairs`, number of the reverse of each edge, or -1, as these operators describe it. They
        then take ``reverse=graph.reverse``. Edges are numbered through all processes, in the order
        of their devices.

    Returns
    -------
    DistributedGraph

    Raises
    ------
    TypeError, ValueError, IndexError, OverflowError
        As for `pyops.Graph`, and if devices, parts or ranges are not as described.

    Examples
    --------
    >>> import jax, pyops.jax
    >>> from jax.sharding import PartitionSpec as P
    >>> mesh = jax.make_mesh((2,), ("ranks",))
    >>> graph = pyops.jax.distribute([0, 1, 2, 3], [1, 2, 3, 0], 4, mesh=mesh)
    >>> layer = jax.shard_map(pyops.jax.aggregate, mesh=mesh, in_specs=P("ranks"),
    ...     out_specs=P("ranks"))
    >>> layer(graph, graph.shard(np.arange(8, dtype="f4").reshape(4, 2), "num_src"))
    Array([[6., 7.],
           [0., 1.],
           [2., 3.],
           [4., 5.]], dtype=float32)
    """
    ranks = _ranks_of(mesh, axis)

    def check() -> _Given:
        ends = []
        for name, given in (("src", src), ("dst", dst)):
            ends.append(check_indices(f"{CALLER}: {name}", on_host(given)).astype(np.int64))
        if len(ends[0]) != len(ends[1]):
            lengths = f"{len(ends[0])} and {len(ends[1])}"
            raise ValueError(f"{CALLER}: src and dst: expected equal lengths, got {lengths}")
        if not isinstance(pairs, (bool, np.bool_)):
            raise TypeError(f"{CALLER}: pairs: expected True or False, got {pairs!r}")
        destinations = _nodes(ranks, "", num_nodes, part, ranges)
        if num_src is None:
            for name, value in (("part_src", part_src), ("ranges_src", ranges_src)):
                if value is not None:
                    got = kind_of(value)
                    raise ValueError(f"{CALLER}: {name}: expected None without num_src, got {got}")
            sources = destinations
        else:
            sources = _nodes(ranks, "_src", num_src, part_src, ranges_src)
            if pairs:
                raise ValueError(f"{CALLER}: num_src: expected None with pairs, got {num_src}")
        check_bounds(f"{CALLER}: src", ends[0], sources.number, "number of sources")
        check_bounds(f"{CALLER}: dst", ends[1], destinations.number, "number of destinations")
        own_src, own_dst = sources.placed(ends[0]), destinations.placed(ends[1])
        owner = destinations.owners(own_dst)
        outside = ~np.isin(owner, ranks.own)
        if outside.any():
            where = int(np.argmax(outside))
            raise IndexError(
                f"{CALLER}: dst: expected nodes of the devices of this process, got "
                f"{ends[1][where]} at {where}, of device {owner[where]}"
            )
        reverses = None
        if reverse is not None:
            reverses = check_indices(f"{CALLER}: reverse", on_host(reverse)).astype(np.int64)
            if not pairs:
                raise ValueError(f"{CALLER}: reverse: expected None without pairs, got an array")
            check_bounds(f"{CALLER}: reverse", reverses, LARGEST, "number of edges", least=-1)
            if len(reverses) != len(owner):
                raise ValueError(
                    f"{CALLER}: reverse: expected {len(owner)} numbers, got {len(reverses)}"
                )
        return _Given(own_src, own_dst, owner, sources, destinations, bool(pairs), reverses)

    return _build(ranks, ranks.together(check))


class _Nodes(NamedTuple):
    """Nodes of one kind: how many, first place of each rank, and the nodes in their places."""

    number: int
    ranges: Values
    order: Values | None
    """None for the order of their numbers."""

    def placed(self, numbers: Values) -> Values:
        """Return the places of nodes, which are in the order of ranks."""
        if self.order is None:
            return numbers
        places = np.empty_like(self.order)
        places[self.order] = np.arange(self.number)
        return places[numbers]

    def owners(self, places: Values) -> Values:
        found: Values = np.searchsorted(self.ranges[1:-1], places, side="right")
        return found

    def of(self, rank: int) -> Values:
        """Return the numbers of the nodes of a rank."""
        first, last = self.ranges[rank : rank + 2].tolist()
        found = np.arange(first, last) if self.order is None else self.order[first:last]
        return found.astype(np.int32)


class _Given(NamedTuple):
    """Checked arguments: places of both ends and the rank of each edge."""

    src: Values
    dst: Values
    owner: Values
    sources: _Nodes
    destinations: _Nodes
    pairs: bool
    reverse: Values | None

    def checksum(self) -> int:
        """Return a checksum of what has to be equal in all processes."""
        nodes = self.sources.ranges.tobytes(), self.destinations.ranges.tobytes()
        flags = self.sources is self.destinations, self.pairs, self.reverse is not None
        return zlib.crc32(repr((nodes, flags)).encode()) >> 1


def _ranks_of(mesh: object, axis: object) -> Ranks:
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{CALLER}: mesh: expected jax.sharding.Mesh, got {kind_of(mesh)}")
    if axis not in mesh.axis_names:
        names = ", ".join(map(repr, mesh.axis_names))
        raise ValueError(f"{CALLER}: axis: expected an axis of the mesh ({names}), got {axis!r}")
    kinds = {device.platform for device in mesh.devices.flat}
    if kinds != {"cpu"}:
        raise ValueError(f"{CALLER}: mesh: expected CPU devices, got {', '.join(sorted(kinds))}")
    ranks = Ranks(mesh, str(axis))
    for rank, processes in enumerate(ranks.processes):
        if len(processes) > 1:
            raise ValueError(
                f"{CALLER}: mesh: expected each index of axis {axis!r} in one process, "
                f"got {rank} in {processes}"
            )
    if not ranks.own:
        raise ValueError(f"{CALLER}: mesh: expected devices of this process, got none")
    return ranks


def _nodes(ranks: Ranks, suffix: str, count: object, part: object, ranges: object) -> _Nodes:
    size = ranks.size
    label = f"{CALLER}: {'num_src' if suffix else 'num_nodes'}"
    nodes = check_count(label, count, LARGEST)
    order = None
    if part is not None and ranges is not None:
        raise ValueError(f"{CALLER}: part{suffix} and ranges{suffix}: expected one, got both")
    if part is not None:
        label = f"{CALLER}: part{suffix}"
        if len(ranks.own) < size:
            raise ValueError(f"{label}: expected None if there are several processes, got parts")
        parts = check_integers(label, on_host(part))
        if parts.shape != (nodes,):
            raise ValueError(f"{label}: expected shape ({nodes},), got {parts.shape}")
        check_bounds(label, parts, size, "number of devices")
        order = np.argsort(parts, kind="stable")
        cuts = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=size))])
    elif ranges is not None:
        label = f"{CALLER}: ranges{suffix}"
        cuts = check_integers(label, ranges)
        expected = f"{size + 1} numbers from 0 to {nodes} that do not decrease"
        if cuts.shape != (size + 1,) or cuts[0] != 0 or cuts[-1] != nodes:
            raise ValueError(f"{label}: expected {expected}, got {cuts.tolist()}")
        if (np.diff(cuts) < 0).any():
            raise ValueError(f"{label}: expected {expected}, got {cuts.tolist()}")
    else:
        cuts = np.arange(size + 1) * nodes // size
    return _Nodes(nodes, cuts.astype(np.int64), order)


def _build(ranks: Ranks, given: _Given) -> DistributedGraph:
    """Return the graph; each step that needs other processes is one for all devices."""
    size, own = ranks.size, ranks.own
    sources, destinations = given.sources, given.destinations
    order = np.argsort(given.owner, kind="stable")
    counts = np.bincount(given.owner, minlength=size)
    ends = np.cumsum(counts)
    edges = {r: order[ends[r] - counts[r] : ends[r]] for r in own}
    halos = {r: _Halo(sources, given.src[edges[r]], r) for r in own}
    cut = {r: _cut(sources, given, edges[r], r, size) for r in own} if given.pairs else {}
    table = ranks.gather(
        {
            r: np.array(
                [
                    given.checksum(),
                    len(given.owner) if r == own[0] else 0,
                    len(edges[r]),
                    halos[r].most,
                    max(map(len, cut[r])) if cut else 0,
                ]
            )
            for r in own
        }
    )
    if len(set(table[:, 0].tolist())) > 1:
        rank = int(np.argmax(table[:, 0] != table[0, 0]))
        raise ValueError(
            f"{CALLER}: num_nodes, ranges, num_src, pairs, reverse: expected the same in all "
            f"processes, got others in process {ranks.processes[rank][0]}"
        )
    before = int(table[: own[0], 1].sum())
    # XLA does not distribute arrays without elements.
    most, halo, pair_halo = np.maximum(table[:, 2:].max(0), 1).tolist()
    num_src, num_dst = (max(1, int(np.diff(n.ranges).max())) for n in (sources, destinations))
    locals_ = num_src + 1 + size * halo
    for what, count in (
        ("edges of all processes", int(table[:, 1].sum())),
        ("rows of sources on a device", locals_),
        ("rows of pairs on a device", given.pairs * (most + 1 + size * pair_halo)),
    ):
        if count > LARGEST:
            raise OverflowError(f"{CALLER}: src: expected at most {LARGEST} {what}, got {count}")
    lists: dict[str, dict[int, Values]] = {
        "src": {r: _padded(halos[r].local(num_src, halo), most, num_src) for r in own},
        "dst": {
            r: _padded(given.dst[edges[r]] - destinations.ranges[r], most, num_dst) for r in own
        },
        "sources": {r: _padded(sources.of(r), num_src, -1) for r in own},
        "destinations": {r: _padded(destinations.of(r), num_dst, -1) for r in own},
        "entries": {r: _padded(before + edges[r], most, -1) for r in own},
    }
    spread = {name: ranks.spread(blocks) for name, blocks in lists.items()}
    needed = ranks.spread({r: halos[r].needed(num_src, halo) for r in own})
    send = _transposed(ranks, needed)
    here = ranks.spread(
        {r: np.bincount(lists["src"][r], minlength=locals_).astype(np.int32) for r in own}
    )

    def degrees(here: jax.Array, send: jax.Array) -> jax.Array:
        total = accumulated(here, send, num_src, ranks.axis)
        (everywhere,) = exchanged([total], send, ranks.axis)
        return jnp.stack([here, everywhere], 1)

    leaves = Leaves(
        **spread,
        ids=None,
        send=send,
        degrees=ranks.mapped(degrees, here, send),
        pairs=None,
        reverse=None,
    )
    layout = Layout(ranks.mesh, ranks.axis, size, num_src, num_dst, most, most, False, halo, 0)
    if given.pairs:
        leaves, nodes = _with_pairs(ranks, given, leaves, edges, cut, before, pair_halo)
        layout = layout._replace(pair_nodes=nodes)
    return DistributedGraph._of(leaves, layout)


class _Halo:
    """Sources of the edges of a rank: its own, and those that it needs of others."""

    def __init__(self, sources: _Nodes, src: Values, rank: int) -> None:
        self._src, self._first = src, int(sources.ranges[rank])
        self._inside = (src >= self._first) & (src < sources.ranges[rank + 1])
        self._ghosts = np.unique(src[~self._inside])
        self._owners = sources.owners(self._ghosts)
        self._rows = self._ghosts - sources.ranges[self._owners]
        self._counts = np.bincount(self._owners, minlength=len(sources.ranges) - 1)
        starts = np.cumsum(self._counts) - self._counts
        self._within = np.arange(len(self._ghosts)) - starts[self._owners]
        self.most = int(self._counts.max())

    def local(self, num_src: int, halo: int) -> Values:
        """Return the local source of each edge."""
        found = self._src - self._first
        at = np.searchsorted(self._ghosts, self._src[~self._inside])
        found[~self._inside] = num_src + 1 + self._owners[at] * halo + self._within[at]
        return found

    def needed(self, num_src: int, halo: int) -> Values:
        """Return the rows that are needed of each rank, `num_src` for padding."""
        found = np.full((len(self._counts), halo), num_src, np.int32)
        found[self._owners, self._within] = self._rows
        return found


def _cut(sources: _Nodes, given: _Given, edges: Values, rank: int, size: int) -> list[Values]:
    """Return the places among the edges of a rank of those whose sources belong to each other."""
    owners = sources.owners(given.src[edges])
    order = np.argsort(owners, kind="stable")
    found: list[Values] = np.split(order, np.cumsum(np.bincount(owners, minlength=size))[:-1])
    found[rank] = found[rank][:0]
    return found


def _with_pairs(
    ranks: Ranks,
    given: _Given,
    leaves: Leaves,
    edges: Mapping[int, Values],
    cut: Mapping[int, list[Values]],
    before: int,
    halo: int,
) -> tuple[Leaves, int]:
    """Add the own edges and those out of own nodes, for operators on pairs of edges."""
    rows = leaves.src.shape[0] // ranks.size
    total = rows + 1 + ranks.size * halo
    sent, send = {}, {}
    columns = [given.src, given.dst, before + np.arange(len(given.src))]
    columns += [np.full(len(given.src), -1) if given.reverse is None else given.reverse]
    table = np.stack(columns, 1).astype(np.int32)
    for rank, some in cut.items():
        blocks = np.full((ranks.size, halo, table.shape[1]), -1, np.int32)
        send[rank] = np.full((ranks.size, halo), rows, np.int32)
        for q, places in enumerate(some):
            blocks[q, : len(places)] = table[edges[rank][places]]
            send[rank][q, : len(places)] = places
        sent[rank] = blocks
    received = ranks.blocks(_transposed(ranks, ranks.spread(sent)))
    every, nodes = {}, {}
    for rank in ranks.own:
        every[rank] = np.full((total, table.shape[1]), -1, np.int32)
        every[rank][: len(edges[rank])] = table[edges[rank]]
        every[rank][rows + 1 :] = received[rank].reshape(-1, table.shape[1])
        ends = every[rank][:, :2]
        nodes[rank] = np.unique(ends[ends >= 0])
    counts = ranks.gather({r: np.array([len(n)]) for r, n in nodes.items()})
    most = int(counts.max())
    src, dst, reverse = {}, {}, {}
    for rank in ranks.own:
        real = every[rank][:, 0] >= 0
        numbered = np.searchsorted(nodes[rank], every[rank][:, :2]).astype(np.int32)
        # Edges that are padding run from one node of their own to another, so they form no pair.
        src[rank] = np.where(real, numbered[:, 0], most)
        dst[rank] = np.where(real, numbered[:, 1], most + 1)

    def check() -> None:
        for rank in ranks.own:
            reverse[rank] = _reverse_rows(every[rank], src[rank], dst[rank])

    if given.reverse is not None:
        ranks.together(check)
    leaves = leaves._replace(
        pairs=(ranks.spread(src), ranks.spread(dst), ranks.spread(send)),
        reverse=ranks.spread(reverse) if given.reverse is not None else None,
    )
    return leaves, most + 2


def _reverse_rows(every: Values, src: Values, dst: Values) -> Values:
    """Return the row of the reverse of each edge on a rank, -1 for none."""
    label = f"{CALLER}: reverse"
    numbers, wanted = every[:, 2], every[:, 3]
    order = np.argsort(numbers, kind="stable")
    at = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    found = np.where(wanted < 0, -1, order[at]).astype(np.int32)
    wrong = (wanted < -1) | ((wanted >= 0) & (numbers[order[at]] != wanted))
    if wrong.any():
        where = int(np.argmax(wrong))
        raise ValueError(
            f"{label}: expected the reverse of an edge to run from its destination to its source, "
            f"got {wanted[where]} for {numbers[where]}, which does not"
        )
    check_turned(label, found, src, dst, None)
    return found


def _transposed(ranks: Ranks, blocks: jax.Array) -> jax.Array:
    """Return the blocks that each rank has for each other, at the ranks that they are for."""
    found: jax.Array = ranks.mapped(lambda b: jax.lax.all_to_all(b, ranks.axis, 0, 0), blocks)
    return found


def _padded(values: Values, length: int, value: int) -> Values:
    found = np.full(length, value, np.int32)
    found[: len(values)] = values
    return found
