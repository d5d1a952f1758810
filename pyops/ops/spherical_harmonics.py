"""Declaration of `spherical_harmonics`: real spherical harmonics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator
from .._schema import Between

if TYPE_CHECKING:
    from .._call.types import Array


@Operator
def spherical_harmonics(
    vectors: Annotated[Array, "num_samples, 3"],
    *,
    max_degree: Annotated[int, Between(0, 64)],
) -> Annotated[Array, "num_samples, (max_degree+1)*(max_degree+1)"]:
    r"""Real spherical harmonics of the directions of vectors.

    .. math:: y_{lm} = Y_{lm}(v / |v|), \qquad l = 0 \dots l_{max},\; m = -l \dots l

    Orthonormal on the sphere, without the phase (-1)^m, in the order (l, m), as in
    ``sphericart.SphericalHarmonics``. Y_1 is proportional to (y, z, x). For a zero vector only Y_00
    is nonzero, and all derivatives are 0.

    Parameters
    ----------
    vectors : array, shape (num_samples, 3)
        Vectors v of any length.
    max_degree : int
        Largest degree l, from 0 to 64.

    Returns
    -------
    array, shape (num_samples, (max_degree + 1) ** 2)
        Harmonic (l, m) in column l (l + 1) + m.

    Notes
    -----
    Time O(num_samples (max_degree + 1) ** 2). Memory beside inputs and results: buffers of fixed
    size for each thread.

    References
    ----------
    Bigi et al., Fast evaluation of spherical harmonics with sphericart, J. Chem. Phys. 159, 064802
    (2023).
    """
