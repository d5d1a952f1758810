"""Declaration of `gat_v2`: graph attention of GATv2."""

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
        "concat": {"out_width": "heads*width"},
        "no concat": {"out_width": "width"},
    },
    attention="num_entries, heads",
    reads={"backward": "shared in out id"},
    unread={"no shared": ("id",)},
    half=("x_src", "x_dst", "edge_features"),
)
def gat_v2(
    graph: Graph,
    x_src: Annotated[Array, "num_src, heads, width | num_src, heads*width"],
    x_dst: Annotated[Array, "num_dst, heads, width | num_dst, heads*width"],
    attention: Annotated[Array, "heads*width"],
    edge_features: Annotated[Array, "num_edges, heads, width | num_edges, heads*width"]
    | None = None,
    mask: Annotated[Array, "num_edges, heads"] | None = None,
    *,
    heads: int,
    concat: bool = True,
    activation: Literal["leaky_relu", "identity", "relu", "sigmoid", "tanh", "elu"] = "leaky_relu",
    negative_slope: float = 0.2,
) -> Annotated[Array, "num_dst, out_width"]:
    r"""Graph attention whose scores are computed by a small network from both ends.

    .. math::

        o_i = \sum_{e = (j \to i)} \mu_e \alpha_e x_j, \qquad
        \alpha = \operatorname{softmax}_{e \to i}
        \langle a, \operatorname{act}(x_j + y_i + f_e) \rangle

    separately for each head. The softmax is shifted by the largest score of each destination; one
    without entries gets 0. No self loops or biases are added.

    Parameters
    ----------
    graph : Graph
    x_src : array, shape (num_src, heads, width) or (num_src, heads * width)
        Features x of the source nodes.
    x_dst : array, shape (num_dst, heads, width) or (num_dst, heads * width)
        Features y of the destination nodes, used in the scores only.
    attention : array, shape (heads * width,)
        The weights a, head-major.
    edge_features : array, shape (num_edges, heads, width), optional
        Features f of the edges, which enter the scores; or (num_edges, heads * width).
    mask : array, shape (num_edges, heads), optional
        Factors mu of alpha, for example of dropout.
    heads : int
        Number of heads.
    concat : bool
        Whether heads are concatenated, out_width = heads * width; otherwise they are averaged.
    activation : {"leaky_relu", "identity", "relu", "sigmoid", "tanh", "elu"}
        Activation of the sums.
    negative_slope : float
        Slope of leaky_relu below 0, and at 0.

    Returns
    -------
    array, shape (num_dst, out_width)
        Weighted mean o of each destination. ``gat_v2(..., return_attention=True)`` returns a pair:
        this, and alpha before the mask, (num_entries, heads) in the order of the graph's entries.

    Notes
    -----
    Time O(E heads width) for E entries. Memory beside inputs and results: O(num_dst heads);
    in derivatives two numbers for each edge and head, four at second order, if each edge has one
    entry.

    References
    ----------
    Brody et al., How attentive are graph attention networks?, arXiv:2105.14491.
    """
