"""Declaration of `elem_scale`: featurewise scaling."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@functools.partial(Operator, also={"x": "elem_scale_input"})
def elem_scale(
    x: Annotated[Array, "num_samples, width"],
    scale: Annotated[Array, "width"],
) -> Annotated[Array, "num_samples, width"]:
    r"""Scale each feature by its own factor, the same for all samples.

    .. math:: y_{si} = c_i x_{si}

    Parameters
    ----------
    x : array, shape (num_samples, width)
        Features of the samples.
    scale : array, shape (width,)
        Factors c.

    Returns
    -------
    array, shape (num_samples, width)
        Scaled features.

    Notes
    -----
    Time O(num_samples width). Memory beside inputs and results: none that grows with the samples.

    References
    ----------
    The spectral weights of the neural operators of the Fortran library athena.
    """
