"""Declaration of `lno_encode`: Laplace transform of functions on [0, 1]."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@functools.partial(Operator, also={"u": "lno_encode_input"})
def lno_encode(
    u: Annotated[Array, "num_samples, points"],
    poles: Annotated[Array, "modes"],
) -> Annotated[Array, "num_samples, modes"]:
    r"""Laplace transform of functions on [0, 1], the encoder of a Laplace neural operator.

    .. math:: y_{sm} = \sum_j e^{-\mu_m t_j} u_{sj}, \qquad t_j = j / (n - 1)

    Parameters
    ----------
    u : array, shape (num_samples, points)
        Values of the functions at n equidistant points t; a single point is t = 0.
    poles : array, shape (modes,)
        Decay rates mu.

    Returns
    -------
    array, shape (num_samples, modes)
        Transforms of the functions at the rates mu.

    Notes
    -----
    Time O(num_samples points modes). Memory beside inputs and results: O(points modes) for the
    exponentials, and arrays of the size of inputs or results in derivatives.

    References
    ----------
    Cao, Goswami and Karniadakis, Laplace neural operator for solving differential equations,
    arXiv:2303.10528; this real form is that of the Fortran library athena.
    """
