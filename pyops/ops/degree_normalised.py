"""Declaration of `degree_normalised`: degree-normalised sum of neighbour features."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    reads={"forward": "in out_offsets", "backward": "shared in out id"},
    unread={"no shared": ("id",)},
    half=("x",),
)
def degree_normalised(
    graph: Graph,
    x: Annotated[Array, "num_src, width"],
    weight: Annotated[Array, "num_edges"] | None = None,
) -> Annotated[Array, "num_dst, width"]:
    r"""Sum of the neighbours' features, normalised by the degrees of both ends.

    .. math:: y_i = \sum_{e = (j \to i)} \frac{w_e}{\sqrt{|in(i)|\, |out(j)|}}\, x_j

    The propagation of graph convolutional networks. Degrees count entries, whatever their weights;
    self loops are not added. A destination without entries gets 0.

    Parameters
    ----------
    graph : Graph
    x : array, shape (num_src, width)
        Features of the source nodes.
    weight : array, shape (num_edges,), optional
        Weights w of the edges.

    Returns
    -------
    array, shape (num_dst, width)
        Normalised sum of each destination.

    Notes
    -----
    Time O(E width) for E entries. Memory beside inputs and results: a few integers for each entry
    in the gradient of weights of shared edges.

    References
    ----------
    Kipf and Welling, Semi-supervised classification with graph convolutional networks,
    arXiv:1609.02907.
    """
