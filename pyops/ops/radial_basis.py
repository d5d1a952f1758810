"""Declaration of `radial_basis`: radial basis of DimeNet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator
from .._schema import Between

if TYPE_CHECKING:
    from .._call.types import Array


@Operator
def radial_basis(
    distances: Annotated[Array, "num_samples"],
    frequencies: Annotated[Array, "num_radial"],
    *,
    exponent: Annotated[int, Between(1, 32)] = 5,
) -> Annotated[Array, "num_samples, num_radial"]:
    r"""Radial basis of DimeNet: sines times an envelope that vanishes smoothly at the cutoff.

    .. math:: y_n = u(x) \sin(\omega_n x), \qquad
              u(x) = \tfrac1x - \tfrac{(p+1)(p+2)}2 x^{p-1} + p(p+2)\,x^p - \tfrac{p(p+1)}2 x^{p+1}

    with p = exponent + 1. The basis is 0 for x >= 1, where it is twice continuously differentiable,
    and for x <= 0.

    Parameters
    ----------
    distances : array, shape (num_samples,)
        Distances x, in units of the cutoff.
    frequencies : array, shape (num_radial,)
        Frequencies, initially pi, 2 pi, ...
    exponent : int
        Exponent of the envelope, from 1 to 32.

    Returns
    -------
    array, shape (num_samples, num_radial)
        Value of each radial function at each distance.

    Notes
    -----
    Time O(num_samples num_radial). Memory beside inputs and results: none that grows with the
    samples.

    References
    ----------
    Gasteiger et al., Directional message passing for molecular graphs, arXiv:2003.03123.
    """
