"""Neighbours of the models of molecules and crystals, which are inputs of their programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import pyops

if TYPE_CHECKING:
    import torch

    from .builder import Builder, Example, Ref


@dataclass(frozen=True)
class Neighbours:
    """Graph of atoms within a cutoff, vectors from destinations to sources, and reverse edges.

    The rows of reverse edges are given in cells alone.
    """

    graph: Ref
    vectors: Ref
    reverse: Ref | None


def norms(builder: Builder, x: Ref) -> Ref:
    """Return the Euclidean norm of each row."""
    return builder.unary("sqrt", builder.unary("sum", builder.multiply(x, x), axis=1))


def neighbours(
    builder: Builder,
    model: torch.nn.Module,
    cutoff: float,
    pos: Ref,
    batch: Ref | None,
    cell: Ref | Example | None,
    pbc: Ref | Example | None,
) -> Neighbours:
    """Add the inputs that `pyops.radius_graph` returns, in cells with offsets and reverse edges.

    Cell and periodicity are no inputs: offsets of periodic images are.
    """
    index = None if batch is None else builder.indices(batch)
    cells, periodic = builder.consumed(cell), builder.consumed(pbc)

    def search() -> dict[str, object]:
        held = None if cells is None else np.asarray(cells, builder.dtype)
        graph, _, offsets, reverse = pyops.radius_graph(
            builder.array(pos), cutoff, cell=held, pbc=periodic, batch=index
        )
        if held is None:
            return {"graph": graph}
        return {"graph": graph, "offsets": np.asarray(offsets, builder.dtype), "reverse": reverse}

    others = [one for one in (batch, cell) if one is not None]
    near = builder.add_searched(model, "cutoff", [pos, pos, *others], search)
    ends = {"x_src": pos, "x_dst": pos}
    vectors = builder.step("edge_difference", ends, {}, near["graph"])
    vectors = builder.add(vectors, near.get("offsets"))
    return Neighbours(near["graph"], vectors, near.get("reverse"))
