"""Neighbours within a cutoff, of tensors, also under torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from .._call.indices import check_count
from ..neighbours import check_cutoff, near_images
from ._call import is_tracing, widened
from ._graph import Graph, TracedGraph
from ._host import on_host
from ._library import LIBRARY

if TYPE_CHECKING:
    AnyGraph: TypeAlias = Graph | TracedGraph


def radius_graph(
    positions: Tensor,
    cutoff: float,
    *,
    cell: Tensor | None = None,
    pbc: Tensor | None = None,
    batch: Tensor | None = None,
) -> tuple[AnyGraph, Tensor, Tensor, Tensor]:
    """Build the graph of all points closer to each other than a cutoff, periodic images included.

    As `pyops.radius_graph`, of tensors. The edges are a constant; `vectors` and `offsets` have
    derivatives by `positions` and `cell`: forces, and the stress by a cell and positions that are
    strained together. Points on a device are searched on the host.

    Parameters
    ----------
    positions : Tensor, shape (num_nodes, dim)
        In one to three dimensions.
    cutoff : float
    cell : Tensor, shape (dim, dim) or (num_graphs, dim, dim), optional
    pbc : Tensor of bool, shape (dim,) or (num_graphs, dim), optional
    batch : Tensor of int32 or int64, shape (num_nodes,), optional

    Returns
    -------
    graph : Graph
        Its edges are in host memory; where torch compiles, they are traced.
    vectors : Tensor, shape (num_edges, dim)
        ``positions[src] - positions[dst] + offsets``.
    offsets : Tensor, shape (num_edges, dim)
        Offset of the source's image, 0 without a cell.
    reverse : Tensor of int64, shape (num_edges,)
        Row of the reverse of each edge.

    Raises
    ------
    TypeError, ValueError
        As for `pyops.radius_graph`.
    NotImplementedError
        Under `torch.func.vmap`, where each example would have edges of its own.
    """
    check_cutoff("radius_graph", cutoff)
    return _graph("radius_graph", positions, float(cutoff), cell, pbc, batch)


def knn_graph(
    positions: Tensor,
    nearest: int,
    *,
    cell: Tensor | None = None,
    pbc: Tensor | None = None,
    batch: Tensor | None = None,
) -> tuple[AnyGraph, Tensor, Tensor]:
    """Build the graph of edges from the nearest other points to each point, images included.

    As `pyops.knn_graph`, of tensors, with the derivatives of `radius_graph`.

    Parameters
    ----------
    positions : Tensor, shape (num_nodes, dim)
    nearest : int
        Number of edges into each point.
    cell, pbc, batch
        As for `radius_graph`.

    Returns
    -------
    graph : Graph
        With one node for each point.
    vectors, offsets : Tensor, shape (num_edges, dim)
        As by `radius_graph`.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As for `radius_graph`.
    """
    nearest = check_count("knn_graph: nearest", nearest)
    return _graph("knn_graph", positions, nearest, cell, pbc, batch)[:3]


def _graph(
    name: str,
    positions: Tensor,
    amount: float,
    cell: Tensor | None,
    pbc: Tensor | None,
    batch: Tensor | None,
) -> tuple[AnyGraph, Tensor, Tensor, Tensor]:
    """Return the graph that an operator of torch finds, its vectors, offsets and reverses."""
    arguments = {"positions": positions, "cell": cell, "pbc": pbc, "batch": batch}
    for key, argument in arguments.items():
        if not isinstance(argument, Tensor) and (argument is not None or key == "positions"):
            raise TypeError(
                f"{name}: {key}: expected a torch.Tensor, got {type(argument).__name__}"
            )
    search = getattr(torch.ops.pyops, name)
    graph: AnyGraph
    if is_tracing(*arguments.values()):
        x, *more = (None if t is None else t.detach() for t in arguments.values())
        edges, images, reverse = search(x, amount, *more)
        src, dst = edges.unbind()
        graph = TracedGraph(src, dst, positions.shape[0], positions.shape[0])
    else:
        x, *more = (None if t is None else values_of(t.detach()) for t in arguments.values())
        with temporarily_clear_interpreter_stack():
            edges, images, reverse = search(x, amount, *more)
            ends = on_host(edges).numpy()
        src, dst = edges.unbind()
        graph = Graph(ends[0], ends[1], positions.shape[0])
    vectors = positions.index_select(0, src) - positions.index_select(0, dst)
    if cell is None:
        return graph, vectors, images, reverse
    cells = cell.to(positions)
    if cells.dim() == 3:
        which = torch.zeros_like(src) if batch is None else batch.to(src.device)[src]
        cells = cells[which]
    offsets = (images.unsqueeze(2) * cells).sum(1)  # no product of reduced precision
    return graph, vectors + offsets, offsets, reverse


Found: TypeAlias = "tuple[Tensor, Tensor, Tensor]"
"""Edges [2, edges], the images of their sources in whole cells, their reverses."""


def _search(
    positions: Tensor,
    cutoff: float | None,
    nearest: int | None,
    *cells: Tensor | None,
) -> Found:
    cell, pbc, batch = (None if t is None else on_host(widened(t)).numpy() for t in cells)
    x = widened(positions).cpu().numpy()
    found = near_images(x, cutoff, nearest, cell=cell, pbc=pbc, batch=batch)
    edges, images, reverse = (torch.from_numpy(a).to(positions.device) for a in found)
    return edges, images.to(positions.dtype), reverse


def _radius(positions: Tensor, cutoff: float, *cells: Tensor | None) -> Found:
    return _search(positions, cutoff, None, *cells)


def _knn(positions: Tensor, nearest: int, *cells: Tensor | None) -> Found:
    return _search(positions, None, nearest, *cells)


def _fake(positions: Tensor, amount: float, *cells: Tensor | None) -> Found:
    edges = torch.library.get_ctx().new_dynamic_size()
    return (
        positions.new_empty((2, edges), dtype=torch.int64),
        positions.new_empty((edges, positions.shape[1])),
        positions.new_empty((edges,), dtype=torch.int64),
    )


def _fake_knn(positions: Tensor, amount: int, *cells: Tensor | None) -> Found:
    edges, images, reverse = _fake(positions, amount, *cells)
    return edges, images, reverse[:0]


for _name, _amount, _kernel, _empty in (
    ("radius_graph", "float cutoff", _radius, _fake),
    ("knn_graph", "int nearest", _knn, _fake_knn),
):
    LIBRARY.define(
        f"{_name}(Tensor positions, {_amount}, Tensor? cell, Tensor? pbc, Tensor? batch)"
        " -> (Tensor, Tensor, Tensor)"
    )
    for _device in "CPU", "CUDA":
        LIBRARY.impl(_name, _kernel, _device)
    torch.library.register_fake(f"pyops::{_name}", _empty, lib=LIBRARY)


def values_of(tensor: Tensor) -> Tensor:
    """Return the tensor that transformations of torch.func have wrapped."""
    while is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            raise NotImplementedError(
                "positions, batch: vmap over positions or batch, where each example would have "
                "edges of its own: join the examples in one call, with batch, or call for each"
            )
        tensor = get_unwrapped(tensor)
    return tensor
