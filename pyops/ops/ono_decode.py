"""Declaration of `ono_decode`: expansion in an orthonormalised basis."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@functools.partial(
    Operator,
    sizes="num_samples points modes",
    at_most={"modes": "points"},
    by_sample={"basis": "num_samples, points*modes"},
    also={"x": "ono_decode_input"},
)
def ono_decode(
    x: Annotated[Array, "num_samples, modes"],
    basis: Annotated[Array, "points, modes | points*modes"],
) -> Annotated[Array, "num_samples, points"]:
    r"""Functions from coefficients in an orthonormalised basis; the transpose of `ono_encode`.

    .. math:: u_s = Q x_s, \qquad B = Q R

    Q has orthonormal columns and R is upper triangular with a positive diagonal. A column of B that
    depends on those before it, up to rounding, has a zero column in Q, and its gradients are zero.

    Parameters
    ----------
    x : array, shape (num_samples, modes)
        Coefficients.
    basis : array, shape (points, modes) or (points * modes,)
        Basis B, with at most as many columns as rows; or its packed block, see
        `pyops.blocks.pack_basis`. Its gradients have the same form.

    Returns
    -------
    array, shape (num_samples, points)
        Values u of the functions.

    Notes
    -----
    Time O(points modes (modes + num_samples)). Memory beside inputs and results: a few arrays
    (points, modes).

    The gradient by the basis is summed over the samples. ``backward(..., per_sample=True)`` returns
    (num_samples, points * modes) instead, the packed gradient of each sample.

    References
    ----------
    Xiao et al., Improved operator learning by orthogonal attention, arXiv:2310.12487; the decoder
    is that of the Fortran library athena.
    """
