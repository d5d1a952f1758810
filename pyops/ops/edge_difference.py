"""Declaration of `edge_difference`: difference of the features at both ends of an edge."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    linear=True,
    reads={
        "forward": "in in_order",
        "backward": "in_offsets in_order out_offsets out_entries",
        "double_backward": "in in_order",
    },
)
def edge_difference(
    graph: Graph,
    x_src: Annotated[Array, "num_src, width"],
    x_dst: Annotated[Array, "num_dst, width"],
) -> Annotated[Array, "num_entries, width"]:
    r"""Difference of the features of the two nodes of each entry.

    .. math:: y_e = x_j - z_i, \qquad e = (j \to i)

    With coordinates as features these are the relative positions of mesh networks and of message
    passing on point clouds. On a graph whose nodes are both sources and destinations, give the
    same array twice: ``edge_difference(graph, x, x)``.

    Parameters
    ----------
    graph : Graph
    x_src : array, shape (num_src, width)
        Features x of the source nodes.
    x_dst : array, shape (num_dst, width)
        Features z of the destination nodes.

    Returns
    -------
    array, shape (num_entries, width)
        Differences, in the order of the graph's entries, which is that of the edges unless edge ids
        repeat.

    Notes
    -----
    Time O(E width) for E entries. Memory beside inputs and results: none, but 8 bytes for each
    entry if entries share edges.

    References
    ----------
    Pfaff et al., Learning mesh-based simulation with graph networks, arXiv:2010.03409.
    """
