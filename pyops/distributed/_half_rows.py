"""Rows of half precision between ranks: sent as they are, added in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._call.half import is_half, rounded, widened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._mpi import Values

    Function = Callable[[Sequence[Values]], Sequence[Values]]


def copied(function: Function, arrays: Sequence[Values]) -> list[Values]:
    """Return the results of a function that copies rows, called for the arrays of each type.

    Those of half precision pass as 16-bit integers.
    """
    bits = [a.view(np.int16) if is_half(a) else a for a in arrays]
    found = dict.fromkeys(range(len(bits)), bits[0]) if bits else {}
    for kind in dict.fromkeys(a.dtype for a in bits):
        places = [i for i, a in enumerate(bits) if a.dtype == kind]
        for i, result in zip(places, function([bits[i] for i in places]), strict=True):
            found[i] = result.view(arrays[i].dtype)
    return [*found.values()]


def added(function: Function, arrays: Sequence[Values]) -> list[Values]:
    """Return the results of a function that adds rows, in float32, rounded once."""
    found = function([widened(a) for a in arrays])
    return [rounded(f, a.dtype) for f, a in zip(found, arrays, strict=True)]
