"""Declaration of `lno_decode`: sums of decaying exponentials and oscillations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array


@functools.partial(Operator, sizes="num_samples points modes", also={"x": "lno_decode_input"})
def lno_decode(
    x: Annotated[Array, "num_samples, modes"],
    poles: Annotated[Array, "modes"],
    frequencies: Annotated[Array, "modes"] | None = None,
    *,
    points: int,
) -> Annotated[Array, "num_samples, points"]:
    r"""Sum of decaying exponentials and oscillations on [0, 1]; the transpose of `lno_encode`.

    .. math:: u_{sj} = \sum_m e^{-\mu_m t_j} \operatorname{cas}(\omega_m t_j) x_{sm},
       \qquad t_j = j / (n - 1), \quad \operatorname{cas} = \cos + \sin

    Without frequencies cas is 1. A pair of complex poles :math:`-\mu \pm i \omega` is two modes of
    decay rate :math:`\mu` with the frequencies :math:`\omega` and :math:`-\omega`, which span the
    cosine and the sine. With complex residues, :math:`\operatorname{Re} \sum_m r_m e^{(-\mu_m + i
    \omega_m) t}` has the weights :math:`(\operatorname{Re} r_m - \operatorname{Im} r_m) / 2` and
    :math:`(\operatorname{Re} r_m + \operatorname{Im} r_m) / 2` of these two.

    Parameters
    ----------
    x : array, shape (num_samples, modes)
        Weights of the exponentials.
    poles : array, shape (modes,)
        Decay rates mu.
    frequencies : array, shape (modes,), optional
        Angular frequencies omega; without them all are 0.
    points : int
        The number n of equidistant points t; a single point is t = 0.

    Returns
    -------
    array, shape (num_samples, points)
        Values u of the functions at the points t.

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
