"""Declaration of `segment_softmax`: softmax over incoming entries."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    reads={"forward": "in in_order", "backward": "shared in in_order id"},
    unread={"": ("in_nodes",), "no shared": ("id",)},
    half=("logits",),
    half_on_devices=False,
)
def segment_softmax(
    graph: Graph,
    logits: Annotated[Array, "num_edges, heads"],
) -> Annotated[Array, "num_entries, heads"]:
    r"""Softmax over the incoming entries of each destination, columnwise.

    .. math:: \alpha_e = \frac{\exp z_e}{\sum_{f \to i} \exp z_f}, \qquad e \to i

    shifted by the largest logit of each destination to avoid overflow.

    Parameters
    ----------
    graph : Graph
    logits : array, shape (num_edges, heads)
        Logits z of the edges.

    Returns
    -------
    array, shape (num_entries, heads)
        Softmax alpha, in the order of the graph's entries, which is that of the edges unless edge
        ids repeat.

    Notes
    -----
    Time O(E heads) for E entries. Memory beside inputs and results: none forward; for second
    derivatives one array (E, heads).

    References
    ----------
    Velickovic et al., Graph attention networks, arXiv:1710.10903.
    """
