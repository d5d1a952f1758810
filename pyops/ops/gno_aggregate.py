"""Declaration of `gno_aggregate`: sum of neighbour features times edge matrices."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    also={"features": "gno_agg_features", "kappa": "gno_agg_kernels"},
    half=("features", "kappa"),
    half_on_devices=False,
    reads={"backward": "shared in out id"},
)
def gno_aggregate(
    graph: Graph,
    features: Annotated[Array, "num_src, in_features"],
    kappa: Annotated[Array, "num_edges, in_features*out_features"],
) -> Annotated[Array, "num_dst, out_features"]:
    r"""Sum of the neighbours' features, each multiplied by the matrix of its edge.

    .. math:: m_i = \sum_{e = (j \to i)} h_j \kappa_e

    Parameters
    ----------
    graph : Graph
    features : array, shape (num_src, in_features)
        Features h of the source nodes.
    kappa : array, shape (num_edges, in_features * out_features)
        ``kappa[e].reshape(in_features, out_features)`` is the matrix of edge e, as returned by
        `gno_kernel`.

    Returns
    -------
    array, shape (num_dst, out_features)
        Sum m of each destination.

    Notes
    -----
    Time O(E in_features out_features) for E entries. Memory beside inputs and results: none that
    grows with the edges, but one row for each entry in derivatives if entries share edges.

    References
    ----------
    Li et al., Neural operator: graph kernel network for partial differential equations,
    arXiv:2003.03485.
    """
