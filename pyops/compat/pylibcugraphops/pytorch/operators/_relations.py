from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .....torch import aggregate, hetero_basis
from .._csc import HeteroCSC
from ._nodes import check_flags, check_graph, check_tensor


def agg_hg_basis_n2n_post(
    feat: Tensor,
    weights_comb: Tensor | None,
    graph: HeteroCSC,
    concat_own: bool = False,
    norm_by_out_degree: bool = False,
) -> Tensor:
    """Sum the features of the sources for each basis, with the weights of the edge types.

    Parameters
    ----------
    feat : tensor, shape (num_src_nodes, dim)
        Features of the nodes, the first of which are the destinations.
    weights_comb : tensor, shape (num_edge_types, num_bases), optional
        Weights of the types in the bases; if not given, every type is a basis.
    graph : HeteroCSC
    concat_own : bool
        Whether to append the destination's own features.
    norm_by_out_degree : bool
        Whether the edges of one type into a destination are averaged.

    Returns
    -------
    tensor, shape (num_dst_nodes, num_bases * dim) or (num_dst_nodes, num_bases * dim + dim)
        Basis by basis.
    """
    caller = "agg_hg_basis_n2n_post"
    check_graph(caller, graph, HeteroCSC)
    check_flags(caller, concat_own=concat_own, norm_by_out_degree=norm_by_out_degree)
    check_tensor(f"{caller}: feat", feat)
    if weights_comb is None:
        how: Literal["sum", "mean"] = "mean" if norm_by_out_degree else "sum"
        types = aggregate(graph.pairs, feat, reduce=how)
        y = types.reshape(graph.num_dst_nodes, graph.num_edge_types * feat.shape[1])
    elif norm_by_out_degree:
        if weights_comb.ndim != 2 or len(weights_comb) != graph.num_edge_types:
            raise ValueError(
                f"{caller}: weights_comb: expected shape ({graph.num_edge_types}, num_bases), "
                f"got {tuple(weights_comb.shape)}"
            )
        shares = graph.shares.to(weights_comb.dtype)[:, None]
        weight = weights_comb[graph.edge_types] * shares
        y = hetero_basis(graph.entries, feat, weight)
    else:
        y = hetero_basis(graph.typed, feat, weights_comb)
    return torch.cat([y, feat[: graph.num_dst_nodes]], dim=1) if concat_own else y
