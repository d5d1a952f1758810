"""Matrix of exponentials E and the derivatives of F, the sum over the samples of  a^T E b.

    E_mj = exp(-mu_m t_j) cas(w_m t_j),  t_j = j / (n - 1),  cas = cos + sin

Without frequencies w, cas is 1. C is E with the frequencies negated: the derivatives of E by mu and
w are -t E and t C, those of C are -t C and -t E. The transform has cotangent a and input b; its
transpose has input a and cotangent b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._array import DeviceArray, required, store

if TYPE_CHECKING:
    from ._declared import LnoDecode, LnoEncode
    from ._runtime import Runtime


class Laplace:
    """Parameters and points of a call, with E, C and their derivatives by the parameters."""

    def __init__(self, rt: Runtime, a: LnoDecode | LnoEncode) -> None:
        self.a, self.rt = a, rt
        self.t = rt.xp.arange(a.points, dtype=a.poles.dtype) / max(1, a.points - 1)
        self.values = rt.xp.exp(-a.poles[:, None] * self.t)
        self.conjugate = self.values
        if a.frequencies is not None:
            wide = rt.xp.arange(a.points, dtype="d") / max(1, a.points - 1)
            angles = a.frequencies[:, None].astype("d") * wide  # may be many turns
            cos, sin = (f(angles).astype(a.poles.dtype) for f in (rt.xp.cos, rt.xp.sin))
            self.values, self.conjugate = self.values * (cos + sin), self.values * (cos - sin)

    def matrix(self, order: int, by_frequencies: bool) -> DeviceArray:
        """Return E, or its derivative of some order by the poles, or once by the frequencies."""
        table = self.conjugate if by_frequencies else self.values
        if not order:
            return table
        found = table * (-self.t) ** order
        return -found if by_frequencies else found

    def by_points(
        self, a: DeviceArray | None, order: int = 0, by_frequencies: bool = False
    ) -> DeviceArray:
        """Return a E, or the product with a derivative of E."""
        matrix = self.matrix(order, by_frequencies)
        return self.rt.matmul(required(a), matrix, precision=self.a.precision)

    def by_modes(
        self, b: DeviceArray | None, order: int = 0, by_frequencies: bool = False
    ) -> DeviceArray:
        """Return E b, or the product with a derivative of E."""
        matrix = self.matrix(order, by_frequencies)
        return self.rt.matmul(required(b), matrix.T, precision=self.a.precision)

    def store(self, out: DeviceArray, *terms: DeviceArray | None) -> None:
        """Store the sum of the terms that are not None."""
        store(out, [term for term in terms if term is not None], self.a.accumulate)

    def gradient(self, a: DeviceArray | None, b: DeviceArray | None) -> None:
        if self.a.gpoles is not None:
            self.store(self.a.gpoles, self._moment(a, b, 1))
        if self.a.gfrequencies is not None:
            self.store(self.a.gfrequencies, self._moment(a, b, 1, True))

    def second(
        self,
        a: DeviceArray | None,
        b: DeviceArray | None,
        ha: DeviceArray | None,
        hb: DeviceArray | None,
        da: DeviceArray | None,
        db: DeviceArray | None,
    ) -> None:
        """Compute the gradients of the derivative of F along ha, hb, hpoles and hfrequencies."""
        p, q = tangents = self.a.hpoles, self.a.hfrequencies
        if da is not None:
            along = [
                None if h is None else self.by_modes(b, 1, bool(i)) * h
                for i, h in enumerate(tangents)
            ]
            self.store(da, None if hb is None else self.by_modes(hb), *along)
        if db is not None:
            along = [
                None if h is None else self.by_points(required(a) * h, 1, bool(i))
                for i, h in enumerate(tangents)
            ]
            self.store(db, None if ha is None else self.by_points(ha), *along)
        for i, out in enumerate((self.a.dpoles, self.a.dfrequencies)):
            if out is None:
                continue
            # By poles and frequencies: t^2 E, - t^2 C; - t^2 C, - t^2 E.
            self.store(
                out,
                None if ha is None else self._moment(ha, b, 1, bool(i)),
                None if hb is None else self._moment(a, hb, 1, bool(i)),
                None if p is None else p * self._moment(a, b, 2, bool(i)),
                None if q is None else (-q if i else q) * self._moment(a, b, 2, not i),
            )

    def _moment(
        self,
        a: DeviceArray | None,
        b: DeviceArray | None,
        order: int,
        by_frequencies: bool = False,
    ) -> DeviceArray:
        """Return a derivative of F by a parameter, summed over the samples in float64."""
        a = required(a)
        products = a * self.by_modes(b, order, by_frequencies)
        return products.sum(axis=0, dtype="d").astype(a.dtype)
