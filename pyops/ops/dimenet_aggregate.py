"""Declaration of `dimenet_aggregate`: edge-to-edge aggregation of DimeNet++."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator
from .._schema import Between

if TYPE_CHECKING:
    from .._call.indices import Indices
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    reads={
        "forward": "shared in out out_entries id",
        "backward": "shared in out out_entries id",
    },
    half=("radial", "embedding"),
    half_on_devices=False,
)
def dimenet_aggregate(
    graph: Graph,
    vectors: Annotated[Array, "num_edges, 3"],
    radial: Annotated[Array, "num_edges, num_spherical*num_radial"],
    embedding: Annotated[Array, "num_edges, channels"],
    weights: Annotated[Array, "num_spherical*num_radial+channels, middle"],
    *,
    num_spherical: Annotated[int, Between(1, 32)] = 7,
    exclude: Literal["node", "none", "image"] = "node",
    reverse: Annotated[Indices, "num_edges", "exclude=image", "reversed"] | None = None,
) -> Annotated[Array, "num_edges, channels"]:
    r"""Edge-to-edge aggregation of DimeNet++: each edge sums those into its source, by angle.

    .. math:: y_e = \sum_f X_f * B A^T S_{ef}, \qquad
              S_{ef} = R_{f,ln}\, Y_l(c_{ef}), \quad c_{ef} = u_e \cdot u_f, \quad
              Y_l = \sqrt{\tfrac{2l+1}{4\pi}}\, P_l

    over the edges f into the source of e, where u are the directions of the vectors, R the radial
    part and X the embedding of an edge, [A; B] the weights. Pairs of edges are never stored:
    high-degree nodes sum spherical harmonics instead, in time linear in their edges. Sources and
    destinations are the same nodes with the same numbers.

    Parameters
    ----------
    graph : Graph
    vectors : array, shape (num_edges, 3)
        From the destination of each edge to its source, or the reverse for all of them, with the
        offset of the periodic image. A zero vector forms no pair.
    radial : array, shape (num_edges, num_spherical * num_radial)
        Radial part R, degree by degree, as returned by `spherical_basis`.
    embedding : array, shape (num_edges, channels)
        Messages X.
    weights : array, shape (num_spherical * num_radial + channels, middle)
        A stacked on B, the two layers that map the basis to the channels, see
        `pyops.blocks.pack_dimenet`.
    num_spherical : int
        Number of degrees l, from 1 to 32.
    exclude : {"node", "none", "image"}
        Which pairs are excluded: those whose edge f starts at the node where e ends, none, or only
        the pair of e and its reverse.
    reverse : array of int32 or int64, shape (num_edges,), optional
        Row of the reverse of each edge, or -1; for ``exclude="image"``. The reverse of an edge
        j -> i must run i -> j, and its reverse must be the edge.

    Returns
    -------
    array, shape (num_edges, channels)
        Sum over the edges into the source of each edge.

    Notes
    -----
    Time O(E C L (L + R)) for E edges, C channels, L degrees and R radial functions, whatever the
    number of pairs at high-degree nodes, and O(C M L R) once for M middle units; at low-degree
    nodes O(L + C L) for each pair instead of O(E C L L). Memory beside inputs and results: for each
    thread L L C elements and a chunk of edges; for gradients two vectors for each edge.

    References
    ----------
    Gasteiger et al., Fast and uncertainty-aware directional message passing for non-equilibrium
    molecules, arXiv:2011.14115.
    """
