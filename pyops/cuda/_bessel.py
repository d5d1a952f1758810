"""Radial bases on a device: launches of kernels/bessel.cu, and zeros of Bessel functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ._neighbours import THREADS, blocks

if TYPE_CHECKING:
    from ._array import DeviceArray, Value
    from ._declared import RadialBasis, SphericalBasis
    from ._runtime import Runtime

LANES = 32
Doubles = npt.NDArray[np.float64]


def _value_and_slope(degree: int, t: Doubles) -> tuple[Doubles, Doubles]:
    """Return j_l(t) and its derivative, for arguments t > l."""
    before, here = np.cos(t) / t, np.sin(t) / t
    for k in range(degree):
        before, here = here, (2 * k + 1) / t * here - before
    return here, before - (degree + 1) / t * here


@functools.cache
def zeros_and_norms(degrees: int, count: int) -> tuple[Doubles, Doubles]:
    """Return the first positive zeros z of j_0, j_1, ... and z sqrt(2) / |j_(l+1)(z)|, [degree, n].

    The zeros of j_l interlace those of j_(l-1), which bracket Newton's method with bisection.
    """
    zeros = np.pi * np.arange(1, count + degrees, dtype=np.float64)
    found, norms = np.empty((2, degrees, count))
    for degree in range(degrees):
        if degree:
            low, high = zeros[:-1].copy(), zeros[1:].copy()
            rising = np.where(np.arange(len(low)) % 2, -1, 1)
            t = (low + high) / 2
            for _ in range(60):
                f, slope = _value_and_slope(degree, t)
                high, low = np.where(f * rising < 0, t, high), np.where(f * rising < 0, low, t)
                step = t - f / slope
                t = np.where((step > low) & (step < high), step, (low + high) / 2)
            zeros = t
        found[degree] = zeros[:count]
        _, slope = _value_and_slope(degree, found[degree])
        norms[degree] = found[degree] * np.sqrt(2) / abs(slope)
    return found, norms


class Basis:
    """A basis in the form that the kernels take."""

    def __init__(
        self,
        rt: Runtime,
        a: RadialBasis | SphericalBasis,
        columns: int,
        each: int = 1,
        *,
        frequencies: DeviceArray | None = None,
        zeros: DeviceArray | None = None,
        norms: DeviceArray | None = None,
    ) -> None:
        self.rt, self.a, self.columns = rt, a, columns
        self.arguments = (
            a.num_samples, columns, a.exponent, each, frequencies, zeros, norms, a.distances,
        )  # fmt: skip

    def _run(self, kernel: str, units: int, lanes: int, *args: Value) -> None:
        every = (*self.arguments, *args)
        self.rt.launch(
            "bessel", kernel, self.a.distances.dtype, blocks(units, lanes), THREADS, every
        )

    def evaluate(self) -> None:
        a = self.a
        self._run("evaluate", a.num_samples * self.columns, 1, a.accumulate, a.y)

    def vjp(
        self,
        by_x: DeviceArray | None,
        by_w: DeviceArray | None = None,
        dgy: DeviceArray | None = None,
        second: bool = False,
        hx: DeviceArray | None = None,
        hw: DeviceArray | None = None,
    ) -> None:
        """Store the gradients of first or second order; by_w is summed over the samples."""
        a = self.a
        shape = a.num_samples, self.columns
        terms = None if by_w is None else self.rt.empty(shape, "float64")
        self._run("vjp", a.num_samples, LANES, a.gy, second, hx, hw, a.accumulate, by_x, terms, dgy)
        if by_w is not None and terms is not None:
            total = terms.sum(0)
            by_w[...] = by_w + total if a.accumulate else total
