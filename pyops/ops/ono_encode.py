"""Declaration of `ono_encode`: projection on an orthonormalised basis."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@functools.partial(
    Operator,
    at_most={"modes": "points"},
    by_sample={"basis": "num_samples, points*modes"},
    also={"u": "ono_encode_input"},
)
def ono_encode(
    u: Annotated[Array, "num_samples, points"],
    basis: Annotated[Array, "points, modes | points*modes"],
) -> Annotated[Array, "num_samples, modes"]:
    r"""Coefficients in an orthonormalised basis, the encoder of an orthogonal neural operator.

    .. math:: y_s = Q^T u_s, \qquad B = Q R

    Q has orthonormal columns and R is upper triangular with a positive diagonal. A column of B that
    depends on those before it, up to rounding, has a zero column in Q, and its gradients are zero.

    Parameters
    ----------
    u : array, shape (num_samples, points)
        Values of the functions at the points.
    basis : array, shape (points, modes) or (points * modes,)
        Basis B, with at most as many columns as rows; or its packed block, see
        `pyops.blocks.pack_basis`. Its gradients have the same form.

    Returns
    -------
    array, shape (num_samples, modes)
        Coefficients of the functions in the basis Q.

    Notes
    -----
    Time O(points modes (modes + num_samples)). Memory beside inputs and results: a few arrays
    (points, modes).

    The gradient by the basis is summed over the samples. ``backward(..., per_sample=True)`` returns
    (num_samples, points * modes) instead, the packed gradient of each sample.

    References
    ----------
    Xiao et al., Improved operator learning by orthogonal attention, arXiv:2310.12487; the encoder
    is that of the Fortran library athena.
    """
