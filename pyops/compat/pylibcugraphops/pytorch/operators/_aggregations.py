from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor

from .....torch import aggregate
from ._nodes import both_ends, check_graph, check_tensor

if TYPE_CHECKING:
    from .._csc import CSC

REDUCTIONS = "sum", "mean", "max", "min"
Reduction: TypeAlias = Literal["sum", "mean", "max", "min"]


def agg_concat_n2n(
    feat: Tensor | tuple[Tensor, Tensor],
    graph: CSC,
    aggr: Reduction = "sum",
    edge_weight: Tensor | None = None,
) -> Tensor:
    """Aggregate the features of the sources, and append the destination's own.

    Parameters
    ----------
    feat : tensor, shape (num_src_nodes, dim), or a pair of tensors
        Features of the nodes; for a bipartite graph those of sources and destinations.
    graph : CSC
    aggr : {"sum", "mean", "max", "min"}
        A weighted mean is divided by the sum of the weights.
    edge_weight : tensor, shape (num_edges,), optional
        Factors of the features at each edge.

    Returns
    -------
    tensor, shape (num_dst_nodes, dim + dim of the destinations)
    """
    caller = "agg_concat_n2n"
    src, dst = both_ends(caller, feat, graph)
    _check_aggr(caller, aggr)
    if aggr != "mean" or edge_weight is None:
        return aggregate(graph.graph, src, None, edge_weight, dst, reduce=aggr)
    sums = aggregate(graph.graph, src, None, edge_weight)
    weights = aggregate(graph.graph, None, edge_weight[:, None])
    return torch.cat([sums / torch.where(weights == 0, 1, weights), dst], dim=1)


def agg_concat_e2n(feat: Tensor, edge_feat: Tensor, graph: CSC, aggr: Reduction = "sum") -> Tensor:
    """Aggregate the features of the edges, and append the destination's own.

    Parameters
    ----------
    feat : tensor, shape (num_dst_nodes, dim)
        Features of the destination nodes.
    edge_feat : tensor, shape (num_edges, dim_edge)
        Features of the edges.
    graph : CSC
    aggr : {"sum", "mean", "max", "min"}

    Returns
    -------
    tensor, shape (num_dst_nodes, dim_edge + dim)
    """
    caller = "agg_concat_e2n"
    check_graph(caller, graph)
    _check_aggr(caller, aggr)
    check_tensor(f"{caller}: feat", feat)
    return aggregate(graph.graph, None, edge_feat, None, feat, reduce=aggr)


def _check_aggr(caller: str, aggr: Reduction) -> None:
    if aggr not in REDUCTIONS:
        raise ValueError(f"{caller}: aggr: expected one of {', '.join(REDUCTIONS)}, got {aggr!r}")
