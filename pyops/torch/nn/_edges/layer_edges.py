"""Edges of a layer and their packed graph, with self loops if requested.

All forms in which layers take edges become one class, so this is one module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .... import graph as _graph
from ..._call import HALVES, is_exporting, is_jit_tracing, is_tracing
from ..._graph import TracedGraph
from ..._host import on_host
from ..._ranks import is_distributed, local_of, same_edges
from .._functions import scatter
from .._reductions import REDUCTIONS
from .cache import cached
from .edge_index import (
    EdgeIndex,
    SizedIndex,
    check_device,
    check_edges,
    has_sizes,
    hosts_of,
    index_of,
    index_of_graph,
    is_sparse,
    like,
    parts_of,
    values_of,
)
from .routes import ALWAYS, is_packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....distributed import DistributedGraph

Fill: TypeAlias = "float | Tensor | str | None"
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class _Packed:
    """Cached results of an edge index, which share no memory with it."""

    graph: _graph.Graph
    index: Tensor | None
    """Sources and destinations, None if the edge index is this tensor itself."""
    kept: Tensor | None
    """Edges that remain after removal of self loops, None for all."""
    replaced: tuple[Tensor, Tensor] | None
    """Removed self loops and their nodes, None if there are none."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges of a layer, with their graph.

    If torch traces, the number of self loops is unknown: removed self loops remain as edges into an
    additional `spare` destination, which `append_spare` appends and `drop_spare` removes.
    """

    index: Tensor
    """Edges [2, edges] in the order of the input, then the added self loops."""
    graph: _graph.Graph | TracedGraph | DistributedGraph | None
    """Packed graph, None if operations of torch reduce the messages."""
    num_dst: int
    into: int
    """Row of the index with the destinations of the messages."""
    given: int
    """Number of edges of the input."""
    loops: int | None = None
    """Number of added self loops, None if self loops were not requested."""
    kept: Tensor | None = None
    replaced: tuple[Tensor, Tensor] | None = None
    spare: int = 0
    values: Tensor | None = None
    """Values of a sparse matrix: edge weights, or features if they have columns."""

    @property
    def src(self) -> Tensor:
        return self.index[1 - self.into]

    @property
    def dst(self) -> Tensor:
        return self.index[self.into]

    def sources(self, rows: Tensor) -> Tensor:
        """Return a row for each source in the index, given those of the rank if there are ranks."""
        return self.graph.exchange(rows) if is_distributed(self.graph) else rows

    def of_sources(self, rows: Tensor) -> Tensor:
        """Gather the row of the source of each edge."""
        return self.sources(rows).index_select(0, self.src)

    def returned(self, edge_index: EdgeIndex) -> EdgeIndex | SizedIndex:
        """Return the index for the caller, who may write to it: the cached one is copied.

        Its type is that of the input, unless torch records.
        """
        if has_sizes(edge_index) and not is_tracing():
            return edge_index if self.loops is None else like(edge_index, self.index, self.loops)
        return self.index if self.index is edge_index else self.index.clone()

    @property
    def count(self) -> int:
        edges: int = self.index.shape[1]
        return edges

    def features(self, caller: str, given: Tensor | None, fill_value: Fill) -> Tensor | None:
        """Return the edge features, with those of self loops according to `fill_value`."""
        if given is None and self.values is not None and self.values.dim() > 1:
            given = self.values
        if given is None:
            return None
        check_device(f"{caller}: edge_attr", given, self.index.device)
        if not given.dim():
            raise ValueError(f"{caller}: edge_attr: expected a row for each edge, got a number")
        if given.shape[0] != self.given:
            raise ValueError(
                f"{caller}: edge_attr: expected {self.given} rows, one for each edge, "
                f"got {given.shape[0]}"
            )
        if self.loops is None:
            return given
        if self.kept is not None:
            given = given.index_select(0, self.kept)
        shape = self.loops, *given.shape[1:]
        if isinstance(fill_value, str) and fill_value in REDUCTIONS:
            loop = scatter(given, self._fill_index(), 0, self.loops + self.spare, fill_value)
            loop = loop[: self.loops]
        elif isinstance(fill_value, Tensor):
            loop = fill_value.to(given.device, given.dtype)
            try:
                loop = (loop if loop.dim() == given.dim() else loop.unsqueeze(0)).expand(shape)
            except RuntimeError:
                raise ValueError(
                    f"{caller}: fill_value: expected a tensor for rows of {list(given.shape[1:])}, "
                    f"got shape {tuple(fill_value.shape)}"
                ) from None
        elif fill_value is None or isinstance(fill_value, int | float):
            loop = given.new_full(shape, 1 if fill_value is None else fill_value)
        else:
            raise ValueError(
                f"{caller}: fill_value: expected None, a number, a tensor or one of "
                f"{', '.join(REDUCTIONS)}, got {fill_value!r}"
            )
        return torch.cat([given, loop])

    def _fill_index(self) -> Tensor:
        """Return for each edge the node whose self loop reduces its features.

        It is the node in the second row, whatever the flow.
        """
        assert self.loops is not None
        edges = self.count - self.loops
        nodes = self.index[1, :edges]
        if self.spare:
            nodes = torch.where(self.dst[:edges] == self.num_dst, self.loops, nodes)
        return nodes

    def looped_weights(self, given: Tensor, fill_value: float, add: bool) -> Tensor:
        """Return edge weights with those of self loops.

        A self loop of the input keeps its weight, to which `fill_value` is added if `add` is set;
        other self loops weigh `fill_value`.
        """
        assert self.loops is not None
        loop = given.new_full((self.loops + self.spare,), fill_value)
        values, nodes = given, None
        if self.spare:
            edges = self.count - self.loops
            removed = self.dst[:edges] == self.num_dst
            nodes = torch.where(removed, self.src[:edges], self.loops)
        elif self.replaced is not None and self.kept is not None:
            values, nodes = given.index_select(0, self.replaced[0]), self.replaced[1]
            given = given.index_select(0, self.kept)
        if nodes is not None:
            store = loop.scatter_add if add else loop.scatter
            loop = store(0, nodes.long(), values)
        return torch.cat([given, loop[: self.loops]])

    def append_spare(self, nodes: Tensor) -> Tensor:
        """Append a row to those of the destinations if there is a spare destination."""
        return torch.nn.functional.pad(nodes, (0, 0, 0, 1)) if self.spare else nodes

    def drop_spare(self, nodes: Tensor) -> Tensor:
        """Remove the row of the spare destination."""
        return nodes[: self.num_dst] if self.spare else nodes

    def counts(self, like: Tensor) -> Tensor:
        """Return the in-degrees in the type of another tensor."""
        return self.sums(like.new_ones(1).expand(self.count))

    def degrees(self, like: Tensor) -> Tensor:
        """Return the in-degrees, at least 1, in the type of another tensor."""
        return self.counts(like).clamp(min=1)

    def sums(self, weight: Tensor) -> Tensor:
        """Return the sums of the weights of incoming edges."""
        if weight.dtype in HALVES:  # torch would round each partial sum
            return self.sums(weight.float()).to(weight.dtype)
        rows = weight.new_zeros(self.num_dst + self.spare)
        if is_exporting():  # the exporter of traces loses duplicates in index_add
            return rows.scatter_add(0, self.dst.long(), weight)
        return rows.index_add(0, self.dst, weight)


def per_edge_graph(edges: Edges, num_src: int) -> _graph.Graph | TracedGraph:
    """Return the graph in which each edge has its own destination."""
    if isinstance(edges.graph, TracedGraph):
        own = torch.arange(edges.count, dtype=edges.index.dtype, device=edges.index.device)
        return TracedGraph(edges.src, own, num_src, edges.count)

    index = on_host(edges.index)

    def pack() -> _graph.Graph:
        ends, count = index[1 - edges.into].numpy(), edges.count
        return _graph._restore(ends, np.arange(count), None, num_src, count, count)

    return cached([index], ("per edge", edges.into, num_src), pack)


def by_relation(edges: Edges, types: Tensor, relations: int, num_src: int) -> Edges:
    """Return edges with a destination for each node and relation, relations of a node in sequence.

    `num_src` is the number of rows of `Edges.sources`.
    """
    places = edges.dst.long() * relations + types
    rows = edges.num_dst * relations
    graph: _graph.Graph | TracedGraph | None = None
    if edges.graph is not None and is_tracing(types):
        graph = TracedGraph(edges.src, places, num_src, rows)
    elif edges.graph is not None:
        index, owners = on_host(edges.index), on_host(types)

        def pack() -> _graph.Graph:
            src, dst = index[1 - edges.into].numpy(), index[edges.into].numpy()
            places = dst.astype(np.int64) * relations + owners.numpy()
            return _graph._restore(src, places, None, num_src, rows, len(places))

        what = "relations", edges.into, relations, num_src, edges.num_dst
        graph = cached([index, owners], what, pack)
    return Edges(torch.stack([edges.src.long(), places]), graph, rows, 1, edges.given)


def types_of_sources(edges: Edges, types: Tensor, relations: int, num_src: int) -> _graph.Graph:
    """Return the graph from the sources of packed edges to the relations of the edges."""
    index, owners = on_host(edges.index), on_host(types)

    def pack() -> _graph.Graph:
        src = index[1 - edges.into].numpy()
        return _graph._restore(src, owners.numpy(), None, num_src, relations, len(src))

    return cached([index, owners], ("types", edges.into, relations, num_src), pack)


def edges_of(
    caller: str,
    edge_index: EdgeIndex,
    num_src: int,
    num_dst: int,
    *,
    device: torch.device = CPU,
    loops: int | None = None,
    into: int = 1,
    route: tuple[str, int] = ALWAYS,
) -> Edges:
    """Return the edges of a layer and their graph, packed once for the same tensor.

    Parameters
    ----------
    caller : str
        Name of the caller in error messages.
    edge_index : tensor, pair of tensors or pyops.Graph
        Integers [2, edges], whose row `into` has the destinations and whose other row the sources
        of messages; or a sparse matrix [num_dst, num_src] of torch, whose two-dimensional values
        are edge features; or a CSC pair (offsets, sources); or a packed graph.
    num_src, num_dst : int
        Numbers of sources and destinations of messages.
    device : torch.device
        Device of the tensors and of the returned index. The graph is in host memory.
    loops : int, optional
        Remove self loops, and append one for each of the first `loops` nodes.
    into : {0, 1}
        Row of the index with the destinations of messages.
    route : (str, int)
        Operator and elements per edge, by which `is_packed` chooses the implementation.
    """
    if is_distributed(edge_index):
        return _distributed(caller, edge_index, num_src, num_dst, device, loops, into)
    edge_index = check_edges(caller, edge_index, device)
    label = f"{caller}: edge_index"
    if is_sparse(edge_index) and not into:
        raise ValueError(f"{label}: flow='target_to_source' needs a tensor [2, edges]")
    if isinstance(edge_index, _graph.Graph):
        sizes = edge_index._num_src, edge_index._num_dst
        if sizes != (num_src, num_dst):
            raise ValueError(f"{label}: expected a graph of {num_src} source and {num_dst} "
                             f"destination nodes, got {edge_index!r}")  # fmt: skip
        if loops is not None:
            raise ValueError(
                f"{label}: a packed graph gets no self loops: expected add_self_loops=False"
            )
        if into:
            index = index_of_graph(edge_index, device)
            return Edges(index, edge_index, num_dst, into, index.shape[1])
        edge_index = index_of_graph(edge_index, device)
    parts, values = parts_of(edge_index), values_of(edge_index)
    if is_tracing(parts[-1]):
        return _traced(index_of(edge_index, parts), values, num_src, num_dst, loops, into)
    given = parts[-1].shape[-1]
    operator, width = route

    def packed(index: Tensor) -> _graph.Graph:
        ends = index.detach().numpy()
        try:
            sizes = num_src, num_dst, ends.shape[1]
            return _graph._restore(ends[1 - into], ends[into], None, *sizes)
        except IndexError as error:
            raise IndexError(f"{label}: {str(error).removeprefix('Graph: ')}") from None

    if not is_packed(operator, width * (given + (loops or 0)), parts[-1]):
        index, kept, replaced = _with_self_loops(index_of(edge_index, parts), loops)
        if index.numel():
            lowest, highest = torch.aminmax(index)
            if int(lowest) < 0 or int(highest) >= min(num_src, num_dst):
                packed(index)  # refuses indices out of the range of their row
        return Edges(index, None, num_dst, into, given, loops, kept, replaced, values=values)
    hosts = hosts_of(edge_index)

    def pack() -> _Packed:
        index, kept, replaced = _with_self_loops(index_of(edge_index, hosts), loops)
        own = None if index is hosts[0] else index.to(device)
        if kept is not None and replaced is not None:
            kept, replaced = kept.to(device), (replaced[0].to(device), replaced[1].to(device))
        return _Packed(packed(index), own, kept, replaced)

    form = edge_index.layout if isinstance(edge_index, Tensor) else None
    found = cached(hosts, (form, num_src, num_dst, loops, into), pack)
    index = parts[0] if found.index is None else found.index
    return Edges(
        index, found.graph, num_dst, into, given, loops, found.kept, found.replaced, values=values
    )


def _distributed(
    caller: str,
    graph: DistributedGraph,
    num_src: int,
    num_dst: int,
    device: torch.device,
    loops: int | None,
    into: int,
) -> Edges:
    """Return the own edges of a rank; the sources in their index are local ones."""
    label = f"{caller}: edge_index"
    if (graph.num_src, graph.num_dst) != (num_src, num_dst):
        raise ValueError(f"{label}: expected a graph of {num_src} source and {num_dst} "
                         f"destination nodes, got {graph!r}")  # fmt: skip
    if loops is not None:
        raise ValueError(
            f"{label}: a distributed graph gets no self loops: expected add_self_loops=False"
        )
    if not into:
        raise ValueError(
            f"{label}: flow='target_to_source' needs a graph with its edges reversed, got {graph!r}"
        )
    if not same_edges(graph):
        raise ValueError(f"{label}: expected a graph whose edges share no rows")
    index = index_of_graph(local_of(graph), device)
    return Edges(index, graph, num_dst, into, index.shape[1])


def least(counts: Sequence[int]) -> int:
    """Return the smallest of some sizes, which are tensors under `torch.jit.trace`."""
    found, *others = counts
    for count in others:
        # keeps symbols symbolic; min would compare them
        found = (torch.minimum if isinstance(found, Tensor) else torch.sym_min)(found, count)
    return found


def _with_self_loops(
    index: Tensor, loops: int | None
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor] | None]:
    """Replace self loops by one for each of `loops` nodes.

    Return also the edges kept, and the removed self loops with their nodes, if there are any.
    """
    if loops is None:
        return index, None, None
    keep = index[0] != index[1]
    others, kept, replaced = index, None, None
    if is_jit_tracing() or not bool(keep.all()):
        kept, removed = keep.nonzero()[:, 0], keep.logical_not().nonzero()[:, 0]
        others, replaced = index[:, kept], (removed, index[0, removed])
    nodes = torch.arange(loops, dtype=index.dtype).expand(2, loops)
    return torch.cat([others, nodes], dim=1), kept, replaced


def _traced(
    index: Tensor, values: Tensor | None, num_src: int, num_dst: int, loops: int | None, into: int
) -> Edges:
    given, spare, kept, replaced = index.shape[1], int(loops is not None), None, None
    if is_jit_tracing() and not is_exporting():  # this tracer does not need the number of edges
        (index, kept, replaced), spare = _with_self_loops(index, loops), 0
    elif loops is not None:
        nodes = torch.arange(loops, dtype=index.dtype, device=index.device)
        ends = torch.where(index[0] == index[1], num_dst, index[into])
        rows = [torch.cat([row, nodes]) for row in (index[1 - into], ends)]
        index = torch.stack(rows if into else rows[::-1])
    graph = TracedGraph(index[1 - into], index[into], num_src, num_dst + spare)
    return Edges(index, graph, num_dst, into, given, loops, kept, replaced, spare, values)
