"""Declaration of `aggregate`: message reduction by sum, mean, maximum or minimum."""

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
        "no x": {"x_width": "0"},
        "no edge": {"edge_width": "0"},
        "no own": {"own_width": "0"},
    },
    one_of=("x", "edge"),
    reads={"backward": "shared in out out_entries id"},
    unread={"no x": ("out", "in_nodes"), "no shared": ("id",)},
    half=("x", "edge", "own"),
)
def aggregate(
    graph: Graph,
    x: Annotated[Array, "num_src, x_width"] | None = None,
    edge: Annotated[Array, "num_edges, edge_width"] | None = None,
    weight: Annotated[Array, "num_edges"] | None = None,
    own: Annotated[Array, "num_dst, own_width"] | None = None,
    *,
    reduce: Literal["sum", "mean", "max", "min"] = "sum",
) -> Annotated[Array, "num_dst, x_width+edge_width+own_width"]:
    r"""Sum, mean, maximum or minimum of the messages into each destination.

    .. math:: y_i = \bigl(\operatorname{reduce}_{e = (j \to i)} w_e\, (x_j \mid f_e)
              \bigm| z_i\bigr)

    A message is the features of the source, those of the edge, or both side by side. Maxima and
    minima are taken columnwise; their gradient goes to the entry that attains the extreme (argmax
    or argmin), the first of equals. A destination without entries gets 0. The destination's own
    features may be appended.

    Parameters
    ----------
    graph : Graph
    x : array, shape (num_src, x_width), optional
        Features of the source nodes.
    edge : array, shape (num_edges, edge_width), optional
        Features f of the edges.
    weight : array, shape (num_edges,), optional
        Weights w of the edges.
    own : array, shape (num_dst, own_width), optional
        Features z of the destination nodes.
    reduce : {"sum", "mean", "max", "min"}
        Reduction of the messages; a mean is divided by their number.

    Returns
    -------
    array, shape (num_dst, x_width + edge_width + own_width)
        Reduced messages of each destination, followed by its own features.

    Notes
    -----
    Time O(E W) for E entries and messages of width W. Memory beside inputs and results: none; for
    gradients of maxima and minima 16 bits for each element of the result.

    References
    ----------
    Hamilton et al., Inductive representation learning on large graphs, arXiv:1706.02216; the
    aggregations of NVIDIA's pylibcugraphops.
    """
