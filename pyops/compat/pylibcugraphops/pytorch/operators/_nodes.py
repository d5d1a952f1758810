"""Shared checks of the calls: the graph, and the features of its nodes."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from ..._queue import check_flag
from .._csc import CSC

Feat: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Features of all nodes, or of sources and destinations."""


def check_graph(caller: str, graph: object, kind: type[CSC] = CSC) -> None:
    if not isinstance(graph, kind):
        raise TypeError(f"{caller}: graph: expected {kind.__name__}, got {type(graph).__name__}")


def check_flags(caller: str, **flags: object) -> None:
    for name, value in flags.items():
        check_flag(f"{caller}: {name}", value)


def check_tensor(label: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(value).__name__}")
    return value


def both_ends(
    caller: str, feat: Feat | tuple[Tensor | None, Tensor | None], graph: CSC
) -> tuple[Tensor, Tensor]:
    """Return the features of sources and of destinations."""
    check_graph(caller, graph)
    pair = isinstance(feat, (tuple, list))
    given = [*feat] if isinstance(feat, (tuple, list)) else [feat]
    if pair and len(given) != 2:
        raise ValueError(f"{caller}: feat: expected a pair of tensors, got {len(given)}")
    if pair != graph.is_bipartite:
        wanted = "a pair of tensors" if graph.is_bipartite else "one tensor"
        which = "bipartite" if graph.is_bipartite else "not bipartite"
        raise TypeError(f"{caller}: feat: expected {wanted}, the graph is {which}")
    tensors = [check_tensor(f"{caller}: feat", tensor) for tensor in given]
    sizes = {"source": graph.num_src_nodes, "destination": graph.num_dst_nodes}
    for (name, size), tensor in zip(sizes.items(), tensors, strict=False):
        if tensor.ndim != 2 or len(tensor) != size:
            raise ValueError(
                f"{caller}: feat: expected shape ({size}, width) for the {name} nodes, "
                f"got {tuple(tensor.shape)}"
            )
    return tensors[0], tensors[-1][: graph.num_dst_nodes]
