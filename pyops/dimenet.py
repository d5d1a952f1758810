"""DimeNet basis: `radial_basis` and `spherical_basis` of the same distances in one operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from ._call.compound import Compound
from ._schema import Between
from .ops.radial_basis import radial_basis
from .ops.spherical_basis import spherical_basis

if TYPE_CHECKING:
    from ._call.types import Array


# The spherical basis comes first; the narrower radial basis then accumulates into its gradients.
@functools.partial(Compound, parts={"sbf": spherical_basis, "rbf": radial_basis})
def dimenet_basis(
    distances: Annotated[Array, "num_samples"],
    frequencies: Annotated[Array, "num_radial"],
    *,
    num_spherical: Annotated[int, Between(1, 16)] = 7,
    num_radial: int = 6,
    exponent: Annotated[int, Between(1, 32)] = 5,
) -> tuple[
    Annotated[Array, "num_samples, num_radial", "rbf"],
    Annotated[Array, "num_samples, num_spherical*num_radial", "sbf"],
]:
    """Compute radial and spherical basis of the same scaled distances.

    Parameters
    ----------
    distances : array, shape (num_samples,)
        Distances in units of the cutoff; for values <= 0 or >= 1 both bases are 0.
    frequencies : array, shape (num_radial,)
        Frequencies of the radial basis, initially pi, 2 pi, ...
    num_spherical : int
        Number of degrees, from 1 to 16.
    num_radial : int
        Number of radial functions: of frequencies, and of zeros for each degree.
    exponent : int
        Exponent of the envelope, from 1 to 32.

    Returns
    -------
    rbf : array, shape (num_samples, num_radial)
        See `radial_basis`.
    sbf : array, shape (num_samples, num_spherical * num_radial)
        See `spherical_basis`; `dimenet_aggregate` takes it.

    Notes
    -----
    Time O(num_samples num_spherical num_radial). Memory beside inputs and results: none that grows
    with the samples.

    References
    ----------
    Gasteiger et al., Directional message passing for molecular graphs, arXiv:2003.03123.
    """
