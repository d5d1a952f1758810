"""Modules that run on the parts of a reproducible graph, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call

from .._host import is_tracing
from .._ranks import blocks_of, dealt, fetched, is_distributed, is_tracked, same_edges, stand_in
from .replicated import parameters_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...distributed import DistributedGraph
    from .._in_parts import Blocks

Arguments: TypeAlias = "tuple[tuple[object, ...], dict[str, object]]"
"""Arguments of a module by position and by name."""
ROWS = {"nodes": "num_dst", "edges": "num_edges"}


class InParts(torch.nn.Module):
    """Module on rows that is called for each part of a reproducible graph.

    So its results, and the gradients of its parameters, which are sums over ranks, have the same
    bits on any number of ranks, as far as those of the module do on the same rows. It may be inside
    of `Replicated`.

    Parameters
    ----------
    module : torch.nn.Module
        Each row of its result depends on the same row of its inputs, as in a `torch.nn.Linear`. Its
        parameters are equal on all ranks.
    graph : pyops.distributed.DistributedGraph
        Made with ``reproducible``.
    rows : {"nodes", "edges"}
        What the rows of inputs and results are: own destination nodes or own edges.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    def __init__(
        self, module: torch.nn.Module, graph: DistributedGraph, rows: str = "nodes"
    ) -> None:
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"InParts: module: expected a torch.nn.Module, got {type(module).__name__}"
            )
        if not is_distributed(graph) or graph._parts is None:
            raise TypeError(
                "InParts: graph: expected a distributed graph made with `reproducible`, "
                f"got {graph!r}"
            )
        if rows not in ROWS:
            raise ValueError(f"InParts: rows: expected one of {', '.join(ROWS)}, got {rows!r}")
        self.module, self.graph, self.rows = module, graph, rows

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return a row for each row of the inputs."""
        axis = ROWS[self.rows]
        _check("InParts", self.graph, [(f"argument {i}", axis, t) for i, t in enumerate(inputs)])
        blocks = blocks_of(self.graph)
        columns = [_copies(blocks, axis, tensor) for tensor in inputs]
        calls: list[Arguments] = [(rows, {}) for rows in zip(*columns, strict=True)]
        return _joined(self.module, self.graph, axis, calls)


def ends_in_parts(graph: DistributedGraph, x: object) -> tuple[Tensor, Tensor] | None:
    """Return the features of sources and destinations if a layer runs on parts of the graph."""
    both = (x, x) if isinstance(x, Tensor) else x
    if graph._parts is None or not same_edges(graph) or not isinstance(both, tuple | list):
        return None
    source, destination = both if len(both) == 2 else (None, None)
    if isinstance(source, Tensor) and isinstance(destination, Tensor):
        return source, destination
    return None


def layer_in_parts(
    layer: torch.nn.Module,
    label: str,
    graph: DistributedGraph,
    ends: tuple[Tensor, Tensor],
    given: Mapping[str, object],
) -> Tensor:
    """Call a layer for each part, with the features of its sources and of its destinations."""
    source, destination = ends
    others = {n: t for n, t in given.items() if n != "x" and isinstance(t, Tensor)}
    rows = [("x", "num_src", source), ("x", "num_dst", destination)]
    _check(label, graph, rows + [(name, "num_edges", t) for name, t in others.items()])
    blocks = blocks_of(graph)
    (sources,) = fetched(graph, label, [source])
    both = _copies(blocks, "num_src", sources), _copies(blocks, "num_dst", destination)
    split = {name: _copies(blocks, "num_edges", t) for name, t in others.items()}
    calls: list[Arguments] = []
    for k, local in enumerate(blocks.graphs):
        plain = {n: local if v is graph else v for n, v in given.items()}
        own = {name: some[k] for name, some in split.items()}
        calls.append(((), {**plain, "x": (both[0][k], both[1][k]), **own}))
    return _joined(layer, graph, "num_dst", calls)


def _copies(blocks: Blocks, axis: str, tensor: Tensor) -> list[Tensor]:
    """Return the rows of each part, at addresses whose alignment no number of ranks changes."""
    return [rows.clone() for rows in blocks.split(axis, tensor)]


def _joined(
    module: torch.nn.Module,
    graph: DistributedGraph,
    axis: str,
    calls: Sequence[Arguments],
) -> Tensor:
    """Call a module for each part, with copies of its parameters, and join the results."""
    blocks, held = blocks_of(graph), parameters_of(module)
    copies = dealt(graph, type(module).__name__, [*held.values()])
    found = [
        functional_call(
            module, {n: p.clone() for n, p in zip(held, some, strict=True)}, given, options
        )
        for some, (given, options) in zip(copies, calls, strict=True)
    ]
    return blocks.joined(axis, found)


def _check(label: str, graph: DistributedGraph, rows: Sequence[tuple[str, str, Tensor]]) -> None:
    """Refuse tensors of other rows than those of the rank, on all ranks."""
    if is_tracing(*(t for _, _, t in rows)):
        return

    def check() -> list[object]:
        found: list[object] = [f"graph {graph._number}"]
        for name, axis, tensor in rows:
            array = stand_in(f"{label}: {name}", tensor)
            length = getattr(graph, axis)
            if not array.ndim or len(array) != length:
                raise ValueError(
                    f"{label}: {name}: expected {axis}={length} rows, got shape {array.shape}"
                )
            found.append((array.dtype.char, array.shape[1:], is_tracked(tensor)))
        return found

    graph.comm._together(label, check, tuple)
