"""Neighbours within a cutoff, from tensors, also under torch.compile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

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


def _search(
    positions: Tensor, batch: Tensor | None, cutoff: float, most: int | None
) -> tuple[Graph, Tensor, Tensor]:
    """Return the graph, its edges as [2, edges], and the sizes of the examples."""
    owner = None if batch is None else on_host(batch).numpy()
    edges, *_ = near_images(widened(positions).cpu().numpy(), cutoff, batch=owner)
    graph = Graph(edges[0], edges[1], len(positions))
    degree = int(graph.in_degrees().max(initial=0))
    if most is not None and degree > most:
        raise ValueError(
            f"max_num_neighbors: expected at least {degree}, the most neighbours of an atom within "
            f"the cutoff, got {most}; None takes all of them at any time"
        )
    counts = [len(positions)] if owner is None else np.bincount(owner)
    index, sizes = torch.from_numpy(edges), torch.from_numpy(np.asarray(counts, np.int64))
    return graph, index.to(positions.device), sizes.to(positions.device)


def _kernel(
    positions: Tensor, batch: Tensor | None, cutoff: float, most: int | None
) -> tuple[Tensor, Tensor]:
    return _search(positions, batch, cutoff, most)[1:]


def _fake(
    positions: Tensor, batch: Tensor | None, cutoff: float, most: int | None
) -> tuple[Tensor, Tensor]:
    if is_exporting():
        raise untranslated("nn.DimeNetPlusPlus")
    context = torch.library.get_ctx()
    edges = positions.new_empty((2, context.new_dynamic_size()), dtype=torch.int64)
    examples = 1 if batch is None else context.new_dynamic_size()
    return edges, positions.new_empty((examples,), dtype=torch.int64)


LIBRARY.define(
    "neighbours(Tensor positions, Tensor? batch, float cutoff, int? most) -> (Tensor, Tensor)"
)
for _device in "CPU", "CUDA":
    LIBRARY.impl("neighbours", _kernel, _device)
torch.library.register_fake("pyops::neighbours", _fake, lib=LIBRARY)


def neighbours(
    positions: Tensor, batch: Tensor | None, cutoff: float, most: int | None
) -> Neighbours:
    """Return the edges between atoms closer than the cutoff; refuse more than `most` per atom."""
    positions, atoms = positions.detach(), positions.shape[0]
    if is_tracing():
        if is_exporting():
            raise untranslated("nn.DimeNetPlusPlus")
        found, counts = torch.ops.pyops.neighbours(positions, batch, cutoff, most)
        src, dst = found.unbind()
        return Neighbours(src, dst, TracedGraph(src, dst, atoms, atoms), counts)
    positions, batch = values_of(positions), None if batch is None else values_of(batch)
    with temporarily_clear_interpreter_stack():
        graph, found, counts = _search(positions, batch, cutoff, most)
    src, dst = found
    return Neighbours(src, dst, graph, counts)
