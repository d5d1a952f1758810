"""Declaration of `edge_to_edge`: sum over the edges into the source of an edge."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.indices import Indices
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    half=("h",),
    linear=True,
    reads={
        "forward": "in id",
        "backward": "in_offsets out_offsets out_edges id",
        "double_backward": "in id",
    },
)
def edge_to_edge(
    graph: Graph,
    h: Annotated[Array, "num_edges, width"],
    *,
    exclude: Literal["none", "image"] = "none",
    reverse: Annotated[Indices, "num_edges", "exclude=image", "reversed"] | None = None,
) -> Annotated[Array, "num_edges, width"]:
    r"""Sum over the edges into the source of each edge, without its own reverse.

    .. math:: y_e = \sum_{f \in in(j)} h_f - h_{rev(e)}, \qquad e = (j \to i)

    The message of directed message passing networks. Sources and destinations are the same nodes
    with the same numbers. If several entries share an edge, their sums are added.

    Parameters
    ----------
    graph : Graph
    h : array, shape (num_edges, width)
        Features of the edges.
    exclude : {"none", "image"}
        Whether the reverse of each edge is excluded.
    reverse : array of int32 or int64, shape (num_edges,), optional
        Row of the reverse of each edge, or -1; for ``exclude="image"``. The reverse of an edge
        j -> i must run i -> j, and its reverse must be the edge.

    Returns
    -------
    array, shape (num_edges, width)
        Sum over the edges into the source of each edge.

    Notes
    -----
    Time O(E width) for E edges. Memory beside inputs and results: a row of sums for each node, and
    4 bytes for each entry.

    References
    ----------
    Yang et al., Analyzing learned molecular representations for property prediction,
    arXiv:1904.01561.
    """
