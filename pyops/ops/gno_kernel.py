"""Declaration of `gno_kernel`: kernel network of the graph neural operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@Operator
def gno_kernel(
    coords: Annotated[Array, "num_edges, dim"],
    params: Annotated[Array, "hidden*(dim+1)+(hidden+1)*in_features*out_features"],
    *,
    hidden: int,
    in_features: int,
    out_features: int,
    activation: Literal["relu", "silu", "gelu", "tanh"] = "relu",
) -> Annotated[Array, "num_edges, in_features*out_features"]:
    r"""Kernel network of the graph neural operator: a matrix for every edge.

    .. math:: \kappa_e = V\,\mathrm{act}(U x_e + b_u) + b_v

    The matrices have edges x in_features x out_features elements; `gno_conv` avoids storing them.

    Parameters
    ----------
    coords : array, shape (num_edges, dim)
        Coordinates x of the edges.
    params : array, shape (P,)
        The block U | b_u | V | b_v, see `pyops.blocks.pack_gno`.
    hidden : int
        Number of hidden units.
    in_features, out_features : int
        Rows and columns of the matrices.
    activation : {"relu", "silu", "gelu", "tanh"}
        Activation of the hidden units; gelu is exact, with the error function.

    Returns
    -------
    array, shape (num_edges, in_features * out_features)
        Matrices kappa: ``kappa[e].reshape(in_features, out_features)`` is the matrix of edge e.

    Notes
    -----
    Time O(E hidden (dim + in_features out_features)) for E edges. Memory beside inputs and results:
    buffers of fixed size for each thread.

    References
    ----------
    Li et al., Neural operator: graph kernel network for partial differential equations,
    arXiv:2003.03485.
    """
