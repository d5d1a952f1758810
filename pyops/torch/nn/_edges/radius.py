"""Neighbours within a cutoff, from tensors, also under torch.compile."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

import pyops.torch as pt

from ....graph import Graph
from ....neighbours import near_images
from ..._call import is_exporting, is_tracing, widened
from ..._graph import TracedGraph
from ..._host import on_host
from ..._library import LIBRARY
from ..._onnx import untranslated
from ..._radius import values_of


class Neighbours(NamedTuple):
    """Edges from atoms to their neighbours within a cutoff."""

    src: Tensor
    dst: Tensor
    graph: Graph | TracedGraph
    counts: Tensor
    """Number of atoms of each example of a batch."""
    images: Tensor | None
    """Images of the sources in whole cell vectors; None without a cell."""
    reverse: Tensor | None
    """Row of the reverse of each edge; None without a cell."""

    def vectors(self, pos: Tensor, cell: Tensor | None, batch: Tensor | None) -> Tensor:
        """Return the vector from the destination of each edge to the image of its source."""
        if self.images is None or cell is None:
            alone: Tensor = pt.edge_update(self.graph, pos, -pos, mode="sum")
            return alone
        cells = cell.to(pos)
        if cells.dim() == 3:
            owner = torch.zeros_like(self.dst) if batch is None else batch[self.dst]
            cells = cells[owner]
        offsets = (self.images.unsqueeze(2) * cells).sum(1)  # no product of reduced precision
        found: Tensor = pt.edge_update(self.graph, pos, -pos, offsets, mode="sum")
        return found


Found: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor]"
"""Edges [2, edges], sizes of examples, images of sources and reverses, empty without a cell."""


def _search(
    positions: Tensor,
    batch: Tensor | None,
    cutoff: float,
    most: int | None,
    *cells: Tensor | None,
) -> tuple[Graph, Found]:
    """Return the graph, and its edges as tensors; `cells` are cell and pbc."""
    owner = None if batch is None else on_host(batch).numpy()
    cell, pbc = (None if t is None else on_host(widened(t)).numpy() for t in cells)
    x = widened(positions).cpu().numpy()
    edges, images, reverse = near_images(x, cutoff, cell=cell, pbc=pbc, batch=owner)
    graph = Graph(edges[0], edges[1], len(positions))
    degree = int(graph.in_degrees().max(initial=0))
    if most is not None and degree > most:
        raise ValueError(
            f"max_num_neighbors: expected at least {degree}, the most neighbours of an atom within "
            f"the cutoff, got {most}; None takes all of them at any time"
        )
    pairs = ((cell, 3), (pbc, 2)) if cell is not None else ()
    per_example = [len(t) for t, n in pairs if t is not None and t.ndim == n]
    least = max(per_example, default=0)
    counts = [len(positions)] if owner is None else np.bincount(owner, minlength=least)
    if cell is None:
        images, reverse = images[:0], reverse[:0]
    arrays = edges, np.asarray(counts, np.int64), images, reverse
    index, sizes, shifts, back = (torch.from_numpy(a).to(positions.device) for a in arrays)
    return graph, (index, sizes, shifts.to(positions.dtype), back)


def _kernel(
    positions: Tensor, batch: Tensor | None, cutoff: float, most: int | None, *cells: Tensor | None
) -> Found:
    return _search(positions, batch, cutoff, most, *cells)[1]


def _fake(
    positions: Tensor, batch: Tensor | None, cutoff: float, most: int | None, *cells: Tensor | None
) -> Found:
    if is_exporting():
        raise untranslated("nn.DimeNetPlusPlus")
    context = torch.library.get_ctx()
    edges = context.new_dynamic_size()
    examples = 1 if batch is None else context.new_dynamic_size()
    near = 0 if cells[0] is None else edges
    return (
        positions.new_empty((2, edges), dtype=torch.int64),
        positions.new_empty((examples,), dtype=torch.int64),
        positions.new_empty((near, positions.shape[1])),
        positions.new_empty((near,), dtype=torch.int64),
    )


LIBRARY.define(
    "neighbours(Tensor positions, Tensor? batch, float cutoff, int? most, Tensor? cell, "
    "Tensor? pbc) -> (Tensor, Tensor, Tensor, Tensor)"
)
for _device in "CPU", "CUDA":
    LIBRARY.impl("neighbours", _kernel, _device)
torch.library.register_fake("pyops::neighbours", _fake, lib=LIBRARY)


def neighbours(
    caller: str,
    positions: Tensor,
    batch: Tensor | None,
    cutoff: float,
    most: int | None,
    *cells: Tensor | None,
) -> Neighbours:
    """Return the edges between atoms closer than the cutoff; refuse more than `most` per atom.

    `cells` are the cell and along which of its vectors space is periodic, each None or a tensor.
    """
    given = [None if t is None else t.detach() for t in (positions, batch, *cells)]
    positions, atoms = positions.detach(), positions.shape[0]
    graph: Graph | TracedGraph
    if is_tracing():
        if is_exporting():
            raise untranslated(f"nn.{caller}")
        x, owner, *others = given
        index, counts, *more = torch.ops.pyops.neighbours(x, owner, cutoff, most, *others)
        src, dst = index.unbind()
        graph = TracedGraph(src, dst, atoms, atoms)
    else:
        x, owner, *others = (None if t is None else values_of(t) for t in given)
        assert x is not None
        with temporarily_clear_interpreter_stack():
            graph, (index, counts, *more) = _search(x, owner, cutoff, most, *others)
        src, dst = index
    images, reverse = (None, None) if cells[0] is None else more
    return Neighbours(src, dst, graph, counts, images, reverse)
