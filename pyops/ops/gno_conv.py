"""Declaration of `gno_conv`: convolution of the graph neural operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    sizes="dim hidden in_features out_features",
    half=("features",),
    half_on_devices=False,
    reads={"backward": "shared in id"},
)
def gno_conv(
    graph: Graph,
    features: Annotated[Array, "num_src, in_features"],
    coords: Annotated[Array, "num_edges, dim"],
    params: Annotated[Array, "hidden*(dim+1)+(hidden+1)*in_features*out_features"],
    *,
    hidden: int,
    activation: Literal["relu", "silu", "gelu", "tanh"] = "relu",
) -> Annotated[Array, "num_dst, out_features"]:
    r"""Graph neural operator: sum of the neighbours' features, each times a matrix of its edge.

    .. math:: m_i = \sum_{e = (j \to i)} h_j \kappa_e, \qquad
              \kappa_e = V\,\mathrm{act}(U x_e + b_u) + b_v

    Equals `gno_aggregate(graph, features, gno_kernel(coords, params, ...))` without storing the
    matrices: the last layer of the kernel network commutes with the sum, m_i = V : Z_i + B_v n_i
    with Z_i = sum of act(U x_e + b_u) (x) h_j. No array of size edges x in_features x out_features
    is allocated, and the operations fall by a factor of 1 / (1/out_features + 1/degree).

    Parameters
    ----------
    graph : Graph
    features : array, shape (num_src, in_features)
        Features h of the source nodes.
    coords : array, shape (num_edges, dim)
        Coordinates x of the edges, usually the difference of node positions.
    params : array, shape (P,)
        The block U | b_u | V | b_v of the kernel network, see `pyops.blocks.pack_gno`; its length
        determines `out_features`.
    hidden : int
        Number of hidden units of the kernel network.
    activation : {"relu", "silu", "gelu", "tanh"}
        Activation of the hidden units; gelu is exact, with the error function.

    Returns
    -------
    array, shape (num_dst, out_features)
        Sum m of each destination.

    Notes
    -----
    Time O(E hidden (dim + in_features) + N hidden in_features out_features) for E entries and N
    destinations. Memory beside inputs and results: buffers of fixed size for each thread and one
    packed copy of V; for gradients of the features a float64 array of their size.

    References
    ----------
    Li et al., Neural operator: graph kernel network for partial differential equations,
    arXiv:2003.03485; the layer is also known as NNConv and ECConv.
    """
