from __future__ import annotations

from typing import Annotated, Literal

from .._arrays import Array
from .._indices import Indices
from .._operator import Operator
from ..graph import Graph


@Operator
def edge_to_edge(
    graph: Graph,
    h: Annotated[Array, "num_edges, width"],
    *,
    exclude: Literal["none", "image"] = "none",
    reverse: Annotated[Indices, "num_edges", "exclude=image", "turned"] | None = None,
) -> Annotated[Array, "num_edges, width"]:
    r"""Every edge sums those into its source, but for its own reverse.

    .. math:: y_e = \sum_{f \in in(j)} h_f - h_{rev(e)}, \qquad e = (j \to i)

    The message of directed message passing networks. Sources and destinations are the same nodes,
    numbered alike. Where several entries share an edge, their sums are added.

    Parameters
    ----------
    graph : Graph
    h : array, shape (num_edges, width)
        Features of the edges.
    exclude : {"none", "image"}
        Whether the reverse of each edge is left out.
    reverse : array of int32 or int64, shape (num_edges,), optional
        Row of the edge that is the reverse of each, or -1; for ``exclude="image"``. The reverse of
        an edge j -> i has to run i -> j, and its reverse has to be the edge.

    Returns
    -------
    array, shape (num_edges, width)

    References
    ----------
    Yang et al., Analyzing learned molecular representations for property prediction,
    arXiv:1904.01561.
    """
