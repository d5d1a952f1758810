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
    frequencies: Annotated[Array, "modes"] | None = None,
) -> Annotated[Array, "num_samples, modes"]:
    r"""Laplace transform of functions on [0, 1], the encoder of a Laplace neural operator.

    .. math:: y_{sm} = \sum_j e^{-\mu_m t_j} \operatorname{cas}(\omega_m t_j) u_{sj},
       \qquad t_j = j / (n - 1), \quad \operatorname{cas} = \cos + \sin

    Without frequencies cas is 1. A pair of complex poles :math:`-\mu \pm i \omega` is two modes of
    decay rate :math:`\mu` with the frequencies :math:`\omega` and :math:`-\omega`, which span the
    cosine and the sine. With y and y' of these two, the transform :math:`\sum_j e^{(-\mu + i
    \omega) t_j} u_{sj}` has the real part :math:`(y + y') / 2` and the imaginary part
    :math:`(y - y') / 2`.

    Parameters
    ----------
    u : array, shape (num_samples, points)
        Values of the functions at n equidistant points t; a single point is t = 0.
    poles : array, shape (modes,)
        Decay rates mu.
    frequencies : array, shape (modes,), optional
        Angular frequencies omega; without them all are 0.

    Returns
    -------
    array, shape (num_samples, modes)
        Transforms of the functions at the rates mu.

    Notes
    -----
    Time O(num_samples points modes). Memory beside inputs and results: O(modes (64 + points / 64))
    for exponentials, and in derivatives a few arrays [num_samples, modes]; of few samples, up to 64
    partial sums of them. With frequencies, overflow of exponentials may give NaN, not infinity.

    References
    ----------
    Cao, Goswami and Karniadakis, Laplace neural operator for solving differential equations,
    arXiv:2303.10528; real poles are those of the Fortran library athena.
    """
