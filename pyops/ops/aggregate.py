"""Declaration of `aggregate`: reduction of the messages into each destination."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.several import Several

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Several,
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
    reduce: Literal[
        "sum",
        "mean",
        "max",
        "min",
        "median",
        "mul",
        "powermean",
        "softmax",
        "std",
        "var",
        "amax",
        "amin",
    ] = "sum",
    temperature: float = 1.0,
    power: float = 1.0,
) -> Annotated[Array, "num_dst, x_width+edge_width+own_width"]:
    r"""Reduction of the messages into each destination, by column.

    .. math:: y_i = \bigl(\operatorname{reduce}_{e = (j \to i)} w_e\, (x_j \mid f_e)
              \bigm| z_i\bigr)

    A message is the features of the source, those of the edge, or both side by side. A destination
    without entries gets 0. The destination's own features may be appended. Of the messages m of k
    entries:

    * ``"sum"``, ``"mean"``, ``"mul"`` (product); derivatives of a product are exact where
      messages are 0. Second ones lose as many digits as the magnitudes of its messages differ by,
      of the 16 of float64, and magnitudes below 1e-301 count as 0.
    * ``"max"``, ``"min"``, ``"median"`` (the lower one of an even number); the gradient goes to
      the entry that attains it (argmax, argmin), the first of equals.
    * ``"amax"``, ``"amin"``, extremes whose gradient is shared equally by all entries that attain
      them, as in PyTorch, so that no derivative depends on the order of the edges.
    * ``"var"``, :math:`\sum_e (m_e - \bar m)^2/k`, and ``"std"``, its square root, whose
      derivative is 0 where all messages are equal.
    * ``"softmax"``, :math:`\sum_e p_e m_e` with p the softmax over the entries of
      ``temperature`` times m.
    * ``"powermean"``, :math:`(\sum_e m_e^p/k)^{1/p}` with p = ``power``, and the geometric mean
      of magnitudes for p = 0; NaN where a power of a negative message is not real. Derivatives
      that are infinite, at messages of 0, are replaced by 0.

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
    reduce : {"sum", "mean", "max", "min", "median", "mul", "powermean", "softmax", "std", "var", \
            "amax", "amin"}
        Reduction of the messages. A tuple of these gives a tuple of results; `gy`, `dgy`, the
        result of jvp and `out` of results are then tuples, too, and gradients by the inputs sums.
    temperature : float
        Factor of the messages in the softmax.
    power : float
        Exponent p of the mean of powers.

    Returns
    -------
    array, shape (num_dst, x_width + edge_width + own_width)
        Reduced messages of each destination, followed by its own features.

    Notes
    -----
    Time O(E W) for E entries and messages of width W, a median as many passes over the entries as
    a number has bits. Memory beside inputs and results: none; for gradients of extremes and
    medians 16 bits for each element of the result, for those of shared extremes without weights
    two numbers of its type, for those of other shared extremes, products, means of powers, softmax,
    deviations and variances three float64, five for second derivatives.

    In PyTorch Geometric `StdAggregation` returns 0 for a variance below 1e-5, and
    `PowerMeanAggregation` clamps messages; nothing is clamped here.

    References
    ----------
    Hamilton et al., Inductive representation learning on large graphs, arXiv:1706.02216; the
    aggregations of NVIDIA's pylibcugraphops.
    """
