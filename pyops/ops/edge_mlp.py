"""Declaration of `edge_mlp`: network of the features of each entry."""

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
    equal={"residual": ("out_features", "edge_width")},
    reads={
        "forward": "in in_order",
        "backward": "shared in in_order id",
    },
    unread={"no shared": ("id",), "no edge_features": ("id", "in_edges")},
)
def edge_mlp(
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
    residual: bool = False,
) -> Annotated[Array, "num_entries, out_features"]:
    r"""Network of several layers of each entry, from the features of its nodes and edge.

    .. math:: y_e = \operatorname{norm}(W_{d+1} h_d + b_{d+1}), \qquad
              h_l = \operatorname{act}(W_l h_{l-1} + b_l), \quad
              h_1 = \operatorname{act}
              (W_\text{src} x_j + W_\text{dst} z_i + W_\text{edge} f_e + b_1)

    for e = (j -> i); with `residual` the features of the edge are added:

    .. math:: y_e = \operatorname{norm}(W_{d+1} h_d + b_{d+1}) + f_e

    The edge update of mesh networks: the same as a network of ``(x[src], z[dst], f)`` joined, of
    which no array exists but the result. `aggregate` sums the results by destination;
    `edge_network` does so without storing them.

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
    residual : bool
        Whether y_e includes f_e, added after the norm; `edge_features` must then be given, and as
        wide as the results.

    Returns
    -------
    array, shape (num_entries, out_features)
        Outputs of the network, in the order of the graph's entries, which is that of the edges
        unless edge ids repeat.

    Notes
    -----
    Time O(N hidden width + E hidden (edge_width + (depth - 1) hidden + out_features)) for N
    nodes and E entries: the products with node features are computed once for each node. Memory
    beside inputs and results: hidden values for each node, 24 bytes for each entry, and buffers
    of fixed size for each thread and for a range of entries. Derivatives recompute the hidden
    layers; they keep float64 sums of hidden values and a few copies of the features for each
    node, 16 to 64 float64 copies of the parameters if gradients by these are wanted, and
    gradients by edge features for each entry if entries share edges. On NVIDIA GPUs they keep
    gradients of hidden values for each entry.

    References
    ----------
    Pfaff et al., Learning mesh-based simulation with graph networks, arXiv:2010.03409; Wang et
    al., Dynamic graph CNN for learning on point clouds, arXiv:1801.07829.
    """
