"""Declaration of `orthonormalize`: Gram-Schmidt orthonormalisation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@functools.partial(Operator, at_most={"modes": "points"})
def orthonormalize(
    basis: Annotated[Array, "points, modes"],
) -> Annotated[Array, "points, modes"]:
    r"""Orthonormalise the columns of a basis in order (Gram-Schmidt).

    .. math:: B = Q R

    R is upper triangular with a positive diagonal. A column of B that depends on those before it,
    up to rounding, has a zero column in Q, and its gradients are zero.

    Parameters
    ----------
    basis : array, shape (points, modes)
        Basis B, with at most as many columns as rows; `pyops.blocks.unpack_basis` converts a
        packed block.

    Returns
    -------
    array, shape (points, modes)
        Orthonormal columns Q.

    Notes
    -----
    Time O(points modes modes). Memory beside inputs and results: a few arrays (points, modes).

    References
    ----------
    Giraud, Langou and Rozloznik, The loss of orthogonality in the Gram-Schmidt orthogonalization
    process, Computers & Mathematics with Applications 50 (2005).
    """
