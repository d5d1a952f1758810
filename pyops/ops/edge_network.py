"""Declaration of `edge_network`: sum of networks of the incoming entries."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator
from .._schema import Between

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    sizes="src_width dst_width edge_width hidden depth out_features",
    where={
        "no x_dst": {"dst_width": "0"},
        "no edge_features": {"edge_width": "0"},
        "none": {"norm_rows": "0"},
        "layer": {"norm_rows": "2"},
    },
    reads={"backward": "shared in id"},
    unread={"no shared": ("id",), "no edge_features": ("id", "in_edges")},
)
def edge_network(
    graph: Graph,
    x_src: Annotated[Array, "num_src, src_width"],
    params: Annotated[
        Array,
        "hidden*(src_width+dst_width+edge_width+1)+(depth-1)*hidden*(hidden+1)"
        "+out_features*(hidden+1+norm_rows)",
    ],
    x_dst: Annotated[Array, "num_dst, dst_width"] | None = None,
    edge_features: Annotated[Array, "num_edges, edge_width"] | None = None,
    *,
    hidden: int,
    depth: Annotated[int, Between(1, 64)] = 1,
    activation: Literal["relu", "silu", "gelu", "tanh"] = "relu",
    norm: Literal["none", "layer"] = "none",
    reduce: Literal["sum", "mean"] = "sum",
) -> Annotated[Array, "num_dst, out_features"]:
    r"""Sum over the incoming edges of a network of the features of nodes and edge.

    .. math:: y_i = \sum_{e = (j \to i)} \operatorname{norm}(W_{d+1} h_d + b_{d+1}), \qquad
              h_l = \operatorname{act}(W_l h_{l-1} + b_l), \quad
              h_1 = \operatorname{act}
              (W_\text{src} x_j + W_\text{dst} z_i + W_\text{edge} f_e + b_1)

    with one network for all entries.

    Message passing with a network for messages. Equals `edge_mlp`, summed by destination, without
    an array with a row for each entry. Destinations without entries get 0.

    Parameters
    ----------
    graph : Graph
    x_src : array, shape (num_src, src_width)
        Features x of the source nodes.
    params : array, shape (P,)
        The block W_src | W_dst | W_edge | b_1 | W_2 | b_2 | ... of all layers, then scale and
        shift of the norm, see `pyops.blocks.pack_edge_network`; its length determines
        `out_features`.
    x_dst : array, shape (num_dst, dst_width), optional
        Features z of the destination nodes.
    edge_features : array, shape (num_edges, edge_width), optional
        Features f of the edges.
    hidden : int
        Number of units of each hidden layer.
    depth : int
        Number of hidden layers, from 1 to 64.
    activation : {"relu", "silu", "gelu", "tanh"}
        Activation of the hidden layers; gelu is exact, with the error function.
    norm : {"none", "layer"}
        Whether the last layer is followed by a layer norm, with epsilon = 1e-5.
    reduce : {"sum", "mean"}
        Sum over the entries of a destination, or their mean.

    Returns
    -------
    array, shape (num_dst, out_features)
        Sum of the outputs of the network into each destination.

    Notes
    -----
    Time O(N hidden width + E hidden (edge_width + (depth - 1) hidden + out_features)) for N nodes
    and E entries. Memory beside inputs and results: that of `edge_mlp`, and float64 sums of the
    result.

    References
    ----------
    Those of `edge_mlp`.
    """
