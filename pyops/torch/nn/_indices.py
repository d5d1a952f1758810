"""Graphs of lists of edges, packed once for the same tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import graph as _graph
from .._graph import Ends
from ._remember import remembered


def graph_of_indices(src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> _graph.Graph | Ends:
    """The graph of the entries src -> dst, each with an edge of its own."""
    if torch.compiler.is_compiling():
        return Ends(src, dst, num_src, num_dst)

    def pack() -> _graph.Graph:
        return _graph._restore(src.numpy(), dst.numpy(), None, num_src, num_dst, len(dst))

    return remembered([src, dst], ("indices", num_src, num_dst), pack)
