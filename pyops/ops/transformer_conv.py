"""Declaration of `transformer_conv`: dot-product attention."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

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
    half=("query", "key", "value", "edge_features"),
)
def transformer_conv(
    graph: Graph,
    query: Annotated[Array, "num_dst, heads, width | num_dst, heads*width"],
    key: Annotated[Array, "num_src, heads, width | num_src, heads*width"],
    value: Annotated[Array, "num_src, heads, width | num_src, heads*width"],
    edge_features: Annotated[Array, "num_edges, heads, width | num_edges, heads*width"]
    | None = None,
    mask: Annotated[Array, "num_edges, heads"] | None = None,
    *,
    heads: int,
    concat: bool = True,
) -> Annotated[Array, "num_dst, out_width"]:
    r"""Dot-product attention over the neighbours, with several heads.

    .. math::

        o_i = \sum_{e = (j \to i)} \mu_e \alpha_e (v_j + f_e), \qquad
        \alpha = \operatorname{softmax}_{e \to i}
        \frac{\langle q_i, k_j + f_e \rangle}{\sqrt{\text{width}}}

    separately for each head. The softmax is shifted by the largest score of each destination; one
    without entries gets 0. No self loops or biases are added.

    Parameters
    ----------
    graph : Graph
    query : array, shape (num_dst, heads, width) or (num_dst, heads * width)
        Queries q of the destination nodes.
    key : array, shape (num_src, heads, width) or (num_src, heads * width)
        Keys k of the source nodes.
    value : array, shape (num_src, heads, width) or (num_src, heads * width)
        Values v of the source nodes.
    edge_features : array, shape (num_edges, heads, width), optional
        Features f of the edges, added to keys and values; or (num_edges, heads * width).
    mask : array, shape (num_edges, heads), optional
        Factors mu of alpha, for example of dropout.
    heads : int
        Number of heads.
    concat : bool
        Whether heads are concatenated, out_width = heads * width; otherwise they are averaged.

    Returns
    -------
    array, shape (num_dst, out_width)
        Weighted mean o of each destination. ``transformer_conv(..., return_attention=True)``
        returns a pair: this, and alpha before the mask, (num_entries, heads) in the order of the
        graph's entries.

    Notes
    -----
    Time O(E heads width) for E entries. Memory beside inputs and results: O(num_dst heads);
    in derivatives two numbers for each edge and head, four at second order, if each edge has one
    entry.

    References
    ----------
    Shi et al., Masked label prediction: unified message passing model for semi-supervised
    classification, arXiv:2009.03509.
    """
