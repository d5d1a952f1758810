"""Declaration of `edge_update`: concatenation or sum of edge and node features."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    where={
        "concat": {"out_width": "edge_width+src_width+dst_width"},
        "sum": {"dst_width": "src_width", "edge_width": "src_width", "out_width": "src_width"},
        "no x_dst": {"dst_width": "0"},
        "no edge": {"edge_width": "0"},
    },
    half=("x_src", "x_dst", "edge"),
    linear=True,
    reads={
        "forward": "in in_order",
        "backward": "in_offsets in_order out_offsets out_entries id",
        "double_backward": "in in_order",
    },
)
def edge_update(
    graph: Graph,
    x_src: Annotated[Array, "num_src, src_width"],
    x_dst: Annotated[Array, "num_dst, dst_width"] | None = None,
    edge: Annotated[Array, "num_edges, edge_width"] | None = None,
    *,
    mode: Literal["concat", "sum"] = "concat",
) -> Annotated[Array, "num_entries, out_width"]:
    r"""Features of each entry from those of its edge, its source and its destination.

    .. math:: y_e = (f_e \mid x_j \mid z_i) \quad\text{or}\quad y_e = f_e + x_j + z_i,
              \qquad e = (j \to i)

    Parameters
    ----------
    graph : Graph
    x_src : array, shape (num_src, src_width)
        Features x of the source nodes.
    x_dst : array, shape (num_dst, dst_width), optional
        Features z of the destination nodes.
    edge : array, shape (num_edges, edge_width), optional
        Features f of the edges.
    mode : {"concat", "sum"}
        Concatenated, or added; to be added, all must have the same width.

    Returns
    -------
    array, shape (num_entries, edge_width + src_width + dst_width) or (num_entries, src_width)
        Updated edge features, in the order of the graph's entries, which is that of the edges
        unless edge ids repeat.

    Notes
    -----
    Time O(E out_width) for E entries. Memory beside inputs and results: 16 bytes for each entry,
    and one row in derivatives if entries share edges.

    References
    ----------
    Battaglia et al., Relational inductive biases, deep learning, and graph networks,
    arXiv:1806.01261; the edge updates of NVIDIA's pylibcugraphops.
    """
