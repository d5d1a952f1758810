"""Exponentials  E_mj = exp(-mu_m t_j),  t_j = j / (n - 1), and the derivatives of

    F = sum over the samples of  a^T E b.

The transform has cotangent a and input b; its transpose has input a and cotangent b.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ._runtime import Runtime
from ._terms import put


class Laplace:
    """Poles and points of a call, with E and its derivatives by the poles."""

    def __init__(self, rt: Runtime, a: SimpleNamespace) -> None:
        self.a, self.rt = a, rt
        xp, dtype = rt.xp, a.poles.dtype
        self.t = xp.arange(a.points, dtype=dtype) / max(1, a.points - 1)
        self.values = xp.exp(-a.poles[:, None] * self.t)

    def by_points(self, a: Any, order: int = 0) -> Any:
        """Return a E, or the product with a derivative of E."""
        matrix = self.values * (-self.t) ** order if order else self.values
        return self.rt.matmul(a, matrix, precision=self.a.precision)

    def by_modes(self, b: Any, order: int = 0) -> Any:
        """Return E b, or the product with a derivative of E."""
        matrix = self.values * (-self.t) ** order if order else self.values
        return self.rt.matmul(b, matrix.T, precision=self.a.precision)

    def put(self, out: Any, *terms: Any) -> None:
        """Store the sum of the terms that are not None."""
        if out is not None:
            put(out, [term for term in terms if term is not None], self.a.accumulate)

    def gradient(self, a: Any, b: Any, gpoles: Any) -> None:
        if gpoles is not None:
            self.put(gpoles, self._total(a, self.by_modes(b, 1)))

    def second(self, a: Any, b: Any, ha: Any, hb: Any, da: Any, db: Any) -> None:
        """Compute the gradients of the derivative of F along ha, hb and hpoles."""
        hpoles, dpoles = self.a.hpoles, self.a.dpoles
        moves = hpoles is not None
        if da is not None:
            more = self.by_modes(b, 1) * hpoles if moves else None
            self.put(da, None if hb is None else self.by_modes(hb), more)
        if db is not None:
            more = self.by_points(a * hpoles, 1) if moves else None
            self.put(db, None if ha is None else self.by_points(ha), more)
        if dpoles is not None:
            self.put(
                dpoles,
                None if ha is None else self._total(ha, self.by_modes(b, 1)),
                None if hb is None else self._total(a, self.by_modes(hb, 1)),
                hpoles * self._total(a, self.by_modes(b, 2)) if moves else None,
            )

    def _total(self, a: Any, modes: Any) -> Any:
        """Return the sum over the samples, in float64."""
        return (a * modes).sum(axis=0, dtype="d").astype(a.dtype)
