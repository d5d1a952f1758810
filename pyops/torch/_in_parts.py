"""Distributed graphs in a fixed number of parts, for calls with tensors.

An operator runs on the rows of one part after another, and on a copy for each part of what all
ranks hold. The gradients of these are then added in the order of parts, which no number of ranks
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from ..distributed._parts import PairedPart, Part
from ..graph import Graph
from ._graph import traceable
from ._transfers import GhostRows, Messages, PartRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from ..distributed._graph import DistributedGraph
    from ..distributed._mpi import Counts
    from ._graph import Graph as TorchGraph

_NONE = np.empty(0, np.int64)


class Blocks(Protocol):
    """Rows of the parts of a rank: of all arrays before, and of results after the calls."""

    messages: Messages
    fetch: str
    """Map by which rows of other ranks come before the own ones are split."""
    graphs: Sequence[TorchGraph]

    def split(self, axis: str, tensor: Tensor) -> Sequence[Tensor]:
        """Return the rows of each part, or its copy."""

    def joined(self, axis: str, rows: Sequence[Tensor]) -> Tensor:
        """Return the rows of this rank from those of the parts."""

    def positions(self, numbers: Mapping[str, Counts]) -> Sequence[Mapping[str, Counts]]:
        """Return row numbers of edges as each part numbers them."""


class NodeParts(Blocks):
    """Parts of destinations, with the entries into them."""

    fetch = "spread"

    def __init__(self, graph: DistributedGraph, dealt: PartRows, scaled: bool) -> None:
        assert graph._parts is not None
        parts = graph._parts.parts or [Part(Graph([], [], 0), slice(0, 0), _NONE, _NONE)]
        self.messages = dealt
        self.graphs = [traceable(part.graph) for part in parts]
        self._axes = graph._axes
        self._sources = [len(part.sources) for part in parts]
        self._rows = [part.rows.stop - part.rows.start for part in parts]
        self._entries = [len(part.entries) for part in parts]
        order = np.concatenate([part.entries for part in parts])
        self._order, self._places = map(torch.from_numpy, (order, np.argsort(order)))
        self._shares: Tensor | None = None
        if scaled:
            degrees = graph._out_degrees()
            shares = [part.shares(degrees) for part in parts]
            self._shares = torch.from_numpy(np.concatenate(shares))

    def split(self, axis: str, tensor: Tensor) -> Sequence[Tensor]:
        """Return the rows of each part, or its copy."""
        if axis == "num_src" and self._shares is not None:
            tensor = scaled_rows(tensor, self._shares)
        found: Sequence[Tensor]
        if axis not in self._axes:
            found = torch.unbind(tensor)
        else:
            sizes = {"num_src": self._sources, "num_dst": self._rows}.get(axis, self._entries)
            by_entry = axis not in ("num_src", "num_dst")
            found = torch.split(tensor.index_select(0, self._order) if by_entry else tensor, sizes)
        return found

    def joined(self, axis: str, rows: Sequence[Tensor]) -> Tensor:
        """Return the rows of this rank from those of the parts."""
        found = torch.cat([*rows])
        return found if axis == "num_dst" else found.index_select(0, self._places)

    def positions(self, numbers: Mapping[str, Counts]) -> Sequence[Mapping[str, Counts]]:
        """Return no row numbers, which operators on pairs of edges take alone."""
        return [{} for _ in self.graphs]


class PairParts(Blocks):
    """Parts of pairs of edges; the part of its source computes the row of an edge."""

    fetch = "exchange"

    def __init__(self, graph: DistributedGraph) -> None:
        pairs = graph._pairs()
        self._parts = pairs.parts or [PairedPart(Graph([], [], 0), _NONE, _NONE)]
        self.messages = GhostRows(graph.comm, pairs.halo)
        self.graphs = [traceable(part.graph) for part in self._parts]
        entries = [np.arange(pairs.halo.size)[part.entries] for part in self._parts]
        self._order = torch.from_numpy(np.concatenate(entries))
        self._sizes = [len(rows) for rows in entries]
        self._others = [torch.from_numpy(part.others) for part in self._parts]
        self._edges = pairs.halo.size

    def split(self, axis: str, tensor: Tensor) -> Sequence[Tensor]:
        """Return the rows of each part, or its copy."""
        found: Sequence[Tensor]
        if axis != "num_edges":
            found = torch.unbind(tensor)
        else:
            found = torch.split(tensor.index_select(0, self._order), self._sizes)
        return found

    def joined(self, axis: str, rows: Sequence[Tensor]) -> Tensor:
        """Return the rows of the edges of this rank, before those of others are sent."""
        pairs = zip(rows, self._others, strict=True)
        own = torch.cat([r.index_fill(0, others, 0) for r, others in pairs])
        return own.new_zeros(self._edges, *own.shape[1:]).index_add(0, self._order, own)

    def positions(self, numbers: Mapping[str, Counts]) -> Sequence[Mapping[str, Counts]]:
        """Return row numbers of edges as each part numbers them."""
        return [{n: part.positions(r) for n, r in numbers.items()} for part in self._parts]


def scaled_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Return rows times a factor each."""
    return rows * factors.to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))
