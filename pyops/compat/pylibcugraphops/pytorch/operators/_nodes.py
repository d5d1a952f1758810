"""Shared checks of the calls: the graph, and the features of its nodes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..._queue import check_flag
from .._csc import CSC


def check_graph(caller: str, graph: Any, kind: type[CSC] = CSC) -> None:
    if not isinstance(graph, kind):
        raise TypeError(f"{caller}: graph: expected {kind.__name__}, got {type(graph).__name__}")


def check_flags(caller: str, **flags: Any) -> None:
    for name, value in flags.items():
        check_flag(f"{caller}: {name}", value)


def check_tensor(label: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(value).__name__}")


def both_ends(caller: str, feat: Any, graph: Any) -> tuple[Tensor, Tensor]:
    """Return the features of sources and of destinations."""
    check_graph(caller, graph)
    pair = isinstance(feat, (tuple, list))
    if pair and len(feat) != 2:
        raise ValueError(f"{caller}: feat: expected a pair of tensors, got {len(feat)}")
    if pair != graph.is_bipartite:
        wanted = "a pair of tensors" if graph.is_bipartite else "one tensor"
        which = "bipartite" if graph.is_bipartite else "not bipartite"
        raise TypeError(f"{caller}: feat: expected {wanted}, the graph is {which}")
    for some in feat if pair else [feat]:
        check_tensor(f"{caller}: feat", some)
    src, dst = feat if pair else (feat, None)
    for name, tensor, size in (
        ("source", src, graph.num_src_nodes),
        ("destination", dst, graph.num_dst_nodes),
    ):
        if tensor is not None and (tensor.ndim != 2 or len(tensor) != size):
            raise ValueError(
                f"{caller}: feat: expected shape ({size}, width) for the {name} nodes, "
                f"got {tuple(tensor.shape)}"
            )
    return src, src[: graph.num_dst_nodes] if dst is None else dst
