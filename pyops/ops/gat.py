"""Declaration of `gat`: graph attention."""

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
        "no edge_features": {"edge_width": "0"},
        "concat": {"out_width": "heads*width"},
        "no concat": {"out_width": "width"},
    },
    attention="num_entries, heads",
    keeps="num_src + 3*num_dst, heads",
    reads={
        "backward": "in in_entries out id",
        "double_backward": "in out_offsets out_nodes out_entries id",
    },
    half=("x_src", "x_dst", "edge_features"),
)
def gat(
    graph: Graph,
    x_src: Annotated[Array, "num_src, heads, width | num_src, heads*width"],
    x_dst: Annotated[Array, "num_dst, heads, width | num_dst, heads*width"],
    attention: Annotated[Array, "heads*(2*width+edge_width)"],
    edge_features: Annotated[Array, "num_edges, heads, edge_width | num_edges, heads*edge_width"]
    | None = None,
    mask: Annotated[Array, "num_edges, heads"] | None = None,
    *,
    heads: int,
    concat: bool = True,
    activation: Literal["leaky_relu", "identity", "relu", "sigmoid", "tanh", "elu"] = "leaky_relu",
    negative_slope: float = 0.2,
) -> Annotated[Array, "num_dst, out_width"]:
    r"""Graph attention: a weighted mean of the neighbours' features, with several heads.

    .. math::

        o_i = \sum_{e = (j \to i)} \mu_e \alpha_e x_j, \qquad
        \alpha = \operatorname{softmax}_{e \to i} \operatorname{act}(
        \langle a_\text{src}, x_j \rangle + \langle a_\text{dst}, y_i \rangle
        + \langle a_\text{edge}, f_e \rangle)

    separately for each head. The softmax is shifted by the largest score of each destination; one
    without entries gets 0. No self loops or biases are added.

    Parameters
    ----------
    graph : Graph
    x_src : array, shape (num_src, heads, width) or (num_src, heads * width)
        Features x of the source nodes.
    x_dst : array, shape (num_dst, heads, width) or (num_dst, heads * width)
        Features y of the destination nodes, used in the scores only.
    attention : array, shape (heads * (2 * width + edge_width),)
        The block a_src | a_dst | a_edge, each head-major; without edge features edge_width is 0.
        See `pyops.blocks.pack_gat`.
    edge_features : array, shape (num_edges, heads, edge_width), optional
        Features f of the edges, which enter the scores; or (num_edges, heads * edge_width).
    mask : array, shape (num_edges, heads), optional
        Factors mu of alpha, for example of dropout.
    heads : int
        Number of heads.
    concat : bool
        Whether heads are concatenated, out_width = heads * width; otherwise they are averaged.
    activation : {"leaky_relu", "identity", "relu", "sigmoid", "tanh", "elu"}
        Activation of the scores.
    negative_slope : float
        Slope of leaky_relu below 0, and at 0.

    Returns
    -------
    array, shape (num_dst, out_width)
        Weighted mean o of each destination. ``gat(..., return_attention=True)`` returns a pair:
        this, and alpha before the mask, (num_entries, heads) in the order of the graph's entries.

    Notes
    -----
    Time O(E heads (width + edge_width)) for E entries. Memory beside inputs and results: O((num_src
    + num_dst) heads), and (num_edges, heads) with edge features; for derivatives one array (E,
    heads), two at second order, and one more each for the gradients of mask and edge features.

    References
    ----------
    Velickovic et al., Graph attention networks, arXiv:1710.10903; the block has the layout of
    NVIDIA's pylibcugraphops.
    """
