from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .....torch import edge_update
from ._nodes import both_ends, check_flags, check_graph

if TYPE_CHECKING:
    from torch import Tensor

    from .._csc import CSC


def update_efeat_e2e(
    edge_feat: Tensor | None,
    node_feat: Tensor | tuple[Tensor | None, Tensor | None] | None,
    graph: CSC,
    use_source_emb: bool,
    use_target_emb: bool,
    mode: Literal["concat", "sum"] = "concat",
) -> Tensor:
    """Combine the features of edges, their sources and their destinations.

    Parameters
    ----------
    edge_feat : tensor, shape (num_edges, dim_edge), optional
        Features of the edges.
    node_feat : tensor, shape (num_src_nodes, dim), or a pair of tensors
        Features of the nodes; for a bipartite graph those of sources and destinations.
    graph : CSC
    use_source_emb, use_target_emb : bool
        Whether the features of the sources, and of the destinations, are used.
    mode : {"concat", "sum"}
        Concatenated, in this order, or added.

    Returns
    -------
    tensor, shape (num_edges, dim_edge + dim_src + dim_dst) or (num_edges, dim_edge)
        In the order of the rows of `edge_feat`.
    """
    return _chosen(
        "update_efeat_e2e", edge_feat, node_feat, graph, use_source_emb, use_target_emb, mode
    )


def _chosen(
    caller: str,
    edge_feat: Tensor | None,
    node_feat: Tensor | tuple[Tensor | None, Tensor | None] | None,
    graph: CSC,
    use_source_emb: bool,
    use_target_emb: bool,
    mode: Literal["concat", "sum"],
) -> Tensor:
    check_graph(caller, graph)
    check_flags(caller, use_source_emb=use_source_emb, use_target_emb=use_target_emb)
    pair = isinstance(node_feat, (tuple, list))
    src: Tensor | None
    dst: Tensor | None
    if node_feat is not None and pair != graph.is_bipartite:
        both_ends(caller, node_feat, graph)
    if not pair and node_feat is not None:
        src, dst = both_ends(caller, node_feat, graph)
    else:
        src, dst = (None, None) if node_feat is None else node_feat
    src, dst = src if use_source_emb else None, dst if use_target_emb else None
    return _updated(caller, edge_feat, src, dst, graph, mode)


def update_efeat_bipartite_e2e(
    edge_feat: Tensor | None,
    src_feat: Tensor | None,
    dst_feat: Tensor | None,
    graph: CSC,
    mode: Literal["concat", "sum"] = "concat",
) -> Tensor:
    """See `update_efeat_e2e`; features that are None are left out."""
    return _updated("update_efeat_bipartite_e2e", edge_feat, src_feat, dst_feat, graph, mode)


def update_efeat_static_e2e(
    edge_feat: Tensor | None,
    node_feat: Tensor | None,
    graph: CSC,
    use_source_emb: bool = True,
    use_target_emb: bool = True,
    mode: Literal["concat", "sum"] = "concat",
) -> Tensor:
    """See `update_efeat_e2e`."""
    caller = "update_efeat_static_e2e"
    return _chosen(caller, edge_feat, node_feat, graph, use_source_emb, use_target_emb, mode)


def _updated(
    caller: str,
    edge: Tensor | None,
    src: Tensor | None,
    dst: Tensor | None,
    graph: CSC,
    mode: Literal["concat", "sum"],
) -> Tensor:
    check_graph(caller, graph)
    if mode not in ("concat", "sum"):
        raise ValueError(f"{caller}: mode: expected 'concat' or 'sum', got {mode!r}")
    if graph.is_shared:
        raise ValueError(f"{caller}: graph: expected one edge for each row of edges, got others")
    if src is not None:
        return edge_update(graph.graph, src, dst, edge, mode=mode)
    if dst is not None:
        return edge_update(graph.reversed, dst, None, edge, mode=mode)
    if edge is None:
        raise TypeError(f"{caller}: expected features of edges or nodes, got none")
    return edge.clone()
