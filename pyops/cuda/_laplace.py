"""Matrix of exponentials E and the derivatives of F, the sum over the samples of  a^T E b.

    E_mj = exp(-mu_m t_j),  t_j = j / (n - 1)

The transform has cotangent a and input b; its transpose has input a and cotangent b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._array import DeviceArray, required, store

if TYPE_CHECKING:
    from ._declared import LnoDecode, LnoEncode
    from ._runtime import Runtime


class Laplace:
    """Poles and points of a call, with E and its derivatives by the poles."""

    def __init__(self, rt: Runtime, a: LnoDecode | LnoEncode) -> None:
        self.a, self.rt = a, rt
        self.t = rt.xp.arange(a.points, dtype=a.poles.dtype) / max(1, a.points - 1)
        self.values = rt.xp.exp(-a.poles[:, None] * self.t)

    def matrix(self, order: int) -> DeviceArray:
        """Return E, or its derivative of some order."""
        return self.values * (-self.t) ** order if order else self.values

    def by_points(self, a: DeviceArray | None, order: int = 0) -> DeviceArray:
        """Return a E, or the product with a derivative of E."""
        return self.rt.matmul(required(a), self.matrix(order), precision=self.a.precision)

    def by_modes(self, b: DeviceArray | None, order: int = 0) -> DeviceArray:
        """Return E b, or the product with a derivative of E."""
        return self.rt.matmul(required(b), self.matrix(order).T, precision=self.a.precision)

    def store(self, out: DeviceArray, *terms: DeviceArray | None) -> None:
        """Store the sum of the terms that are not None."""
        store(out, [term for term in terms if term is not None], self.a.accumulate)

    def gradient(self, a: DeviceArray | None, b: DeviceArray | None) -> None:
        if self.a.gpoles is not None:
            self.store(self.a.gpoles, self._by_poles(a, b, 1))

    def second(
        self,
        a: DeviceArray | None,
        b: DeviceArray | None,
        ha: DeviceArray | None,
        hb: DeviceArray | None,
        da: DeviceArray | None,
        db: DeviceArray | None,
    ) -> None:
        """Compute the gradients of the derivative of F along ha, hb and hpoles."""
        hpoles, dpoles = self.a.hpoles, self.a.dpoles
        if da is not None:
            by_poles = None if hpoles is None else self.by_modes(b, 1) * hpoles
            self.store(da, None if hb is None else self.by_modes(hb), by_poles)
        if db is not None:
            by_poles = None if hpoles is None else self.by_points(required(a) * hpoles, 1)
            self.store(db, None if ha is None else self.by_points(ha), by_poles)
        if dpoles is not None:
            self.store(
                dpoles,
                None if ha is None else self._by_poles(ha, b, 1),
                None if hb is None else self._by_poles(a, hb, 1),
                None if hpoles is None else hpoles * self._by_poles(a, b, 2),
            )

    def _by_poles(self, a: DeviceArray | None, b: DeviceArray | None, order: int) -> DeviceArray:
        """Return a derivative of F by the poles, summed over the samples in float64."""
        a = required(a)
        return (a * self.by_modes(b, order)).sum(axis=0, dtype="d").astype(a.dtype)
