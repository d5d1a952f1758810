"""Declaration of `segment_matmul`: rows times the matrices of their types."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    reads={
        "forward": "in_offsets in_nodes in_order",
        "backward": "in_offsets in_nodes in_order out_offsets out_entries",
    },
    half=("x",),
    half_on_devices=False,
)
def segment_matmul(
    graph: Graph,
    x: Annotated[Array, "num_src, in_features"],
    weight: Annotated[
        Array, "num_dst, in_features, out_features | num_dst, in_features*out_features"
    ],
    bias: Annotated[Array, "num_dst, out_features"] | None = None,
) -> Annotated[Array, "num_entries, out_features"]:
    r"""Product of each row with the matrix of its type, and a bias of the type.

    .. math:: y_e = x_j W_t + b_t, \qquad e = (j \to t)

    The graph assigns types to rows: its sources are rows, its destinations types. For a type of
    each row it is ``Graph(np.arange(len(x)), types, len(x), num_types)``, for rows sorted by type,
    with the offsets ``ptr`` of pyg_lib's `segment_matmul`, ``Graph.from_csc(ptr, np.arange(len(x)),
    len(x))``. A row may have several types, or none. Results are in the order of the graph's
    entries, in these cases that of the rows. Rows are grouped by type when the graph is first used,
    so a graph is best kept.

    Messages with the matrix of their relation, as in RGCN, are the products of the sources:
    ``aggregate(graph, edge=segment_matmul(Graph(src, relations, num_nodes, num_relations), x,
    weight))``.

    Parameters
    ----------
    graph : Graph
        From rows to types.
    x : array, shape (num_src, in_features)
        Rows x.
    weight : array, shape (num_dst, in_features, out_features)
        Matrix W of each type; or (num_dst, in_features * out_features).
    bias : array, shape (num_dst, out_features), optional
        Bias b of each type.

    Returns
    -------
    array, shape (num_entries, out_features)
        Products, in the order of the graph's entries.

    Notes
    -----
    Time O(E in_features out_features) for E entries; a type takes the time of its matrix, too, so
    few rows of many types take longer. Memory beside inputs and results: for each thread one matrix
    and a block of rows; for gradients of the matrices 40 bytes a type and up to 128 partial sums in
    float64; and (E, in_features) for gradients of x if a row has several types. On a GPU the rows
    are gathered by type, (E, in_features + out_features), and each type is one product of cuBLAS.

    References
    ----------
    Schlichtkrull et al., Modeling relational data with graph convolutional networks,
    arXiv:1703.06103.
    """
