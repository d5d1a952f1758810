"""Declaration of `spherical_basis`: radial part of the spherical basis of DimeNet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator
from .._schema import Between

if TYPE_CHECKING:
    from .._call.types import Array


@Operator
def spherical_basis(
    distances: Annotated[Array, "num_samples"],
    *,
    num_spherical: Annotated[int, Between(1, 16)] = 7,
    num_radial: int = 6,
    exponent: Annotated[int, Between(1, 32)] = 5,
) -> Annotated[Array, "num_samples, num_spherical*num_radial"]:
    r"""Radial part of the spherical basis of DimeNet.

    .. math:: y_{ln} = u(x)\, \frac{\sqrt2}{|j_{l+1}(z_{ln})|}\, j_l(z_{ln} x)

    with spherical Bessel functions j, their zeros z, n = 1 for the first, and the envelope u of
    `radial_basis`. `dimenet_aggregate` multiplies it by functions of angles.

    Parameters
    ----------
    distances : array, shape (num_samples,)
        Distances x, in units of the cutoff; for x <= 0 or x >= 1 the basis is 0.
    num_spherical : int
        Number of degrees l, from 1 to 16.
    num_radial : int
        Number of zeros for each degree.
    exponent : int
        Exponent of the envelope, from 1 to 32.

    Returns
    -------
    array, shape (num_samples, num_spherical * num_radial)
        Degree l and zero n in column l num_radial + n - 1.

    Notes
    -----
    Time O(num_samples num_spherical num_radial). Memory beside inputs and results: none that grows
    with the samples.

    References
    ----------
    Gasteiger et al., Directional message passing for molecular graphs, arXiv:2003.03123.
    """
