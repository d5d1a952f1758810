"""Real spherical harmonics of the directions of vectors on a device."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._arguments import Written
from .._neighbours import THREADS, blocks

if TYPE_CHECKING:
    from .._array import DeviceArray, Value
    from .._declared import SphericalHarmonics
    from .._runtime import Runtime

LANES = 8


@functools.cache
def _coefficients(degree: int) -> npt.NDArray[np.float64]:
    """Return coefficients of the recurrences in l, of the derivative by z, and P_mm: one row each.

    P_lm = up z P_(l-1)m - down P_(l-2)m and dP_lm / dz = slope P_l(m+1), at l (l + 1) / 2 + m.
    """
    table = np.zeros((4, (degree + 1) * (degree + 2) // 2))
    size = np.sqrt(1 / (4 * np.pi))
    for m in range(degree + 1):
        if m > 0:
            size *= np.sqrt(3 if m == 1 else (2 * m + 1) / (2 * m))
        table[3, m] = size
        for k in range(m, degree + 1):
            at = k * (k + 1) // 2 + m
            table[2, at] = np.sqrt((k - m) * (k + m + 1) * (0.5 if m == 0 else 1))
            if k > m:
                table[0, at] = np.sqrt((4 * k * k - 1) / (k * k - m * m))
            if k > m + 1:
                table[1, at] = np.sqrt(
                    ((k - 1) ** 2 - m * m) * (2 * k + 1) / ((2 * k - 3) * (k * k - m * m))
                )
    return table


def _run(
    rt: Runtime, a: SphericalHarmonics, kernel: str, tangents: DeviceArray | None, *args: Value
) -> None:
    table = a.table(_coefficients(a.max_degree))
    rows = (table[row] for row in range(4))
    every = (a.num_samples, a.max_degree, *rows, a.vectors, tangents, *args)
    rt.launch("harmonics", kernel, a.vectors.dtype, blocks(a.num_samples, LANES), THREADS, every)


def forward(rt: Runtime, a: SphericalHarmonics) -> None:
    """Compute y."""
    _run(rt, a, "evaluate", None, a.accumulate, a.y)


def backward(rt: Runtime, a: SphericalHarmonics) -> None:
    """Compute gvectors if requested."""
    if a.gvectors is not None:
        _run(rt, a, "vjp", None, a.gy, a.accumulate, a.gvectors)


def double_backward(rt: Runtime, a: SphericalHarmonics) -> None:
    """Compute dvectors and dgy, as requested."""
    written = Written(a)
    if a.hvectors is not None and a.dvectors is not None:
        _run(rt, a, "vjp", a.hvectors, a.gy, written("dvectors"), a.dvectors)
    if a.hvectors is not None and a.dgy is not None:
        _run(rt, a, "evaluate", a.hvectors, written("dgy"), a.dgy)
    written.finish("dvectors", "dgy")
