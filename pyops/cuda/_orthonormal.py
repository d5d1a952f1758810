"""B = Q R and the derivatives of Q. Tall matrices are stored column by column, [modes, points].

Encoding and decoding are derivatives of  F = sum over the samples of  a^T Q b:  one has input a
and cotangent b, the other input b and cotangent a.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ._runtime import Runtime
from ._terms import put


class Orthonormal:
    """Q and R of the basis of a call."""

    def __init__(self, rt: Runtime, a: SimpleNamespace) -> None:
        self.rt, self.a, self.xp = rt, a, rt.xp
        self.n, self.k, self.dtype = a.points, a.modes, a.basis.dtype
        self.q = self.columns(a.basis)
        self.r = rt.zeros((self.k, self.k), self.dtype)
        self.live = rt.empty(self.k, self.dtype)
        held = [self.q, self.r, self.live, self.n, self.k]
        rt.launch("orthonormal", "gram_schmidt", self.dtype, 1, 512, held, 8 * self.k)

    def columns(self, basis: Any) -> Any:
        """Return a copy of a basis, given in either of its forms."""
        if self.a.packed:
            return basis.reshape(self.k, self.n).copy()
        return self.xp.array(basis.reshape(self.n, self.k).T, order="C", copy=True)

    def store(self, out: Any, columns: Any, *, add: bool) -> None:
        """Store a gradient in the form of the basis."""
        if self.a.packed:
            put(out.reshape(self.k, self.n), [columns], add)
        else:
            put(out.reshape(self.n, self.k), [columns.T], add)

    def multiply(self, left: Any, right: Any) -> Any:
        return self.rt.matmul(left, right, precision=self.a.precision)

    def divide(self, x: Any, transposed: bool) -> Any:
        """Compute x R^-1 or x R^-T in place, also for a stack of matrices."""
        matrices = x.size // (self.n * self.k)
        held = [x, self.r, matrices, self.n, self.k, transposed]
        self.rt.launch("orthonormal", "divide", self.dtype, -(-matrices * self.n // 128), 128, held)
        return x

    def masked(self, gradient: Any) -> Any:
        """Return the gradient with 0 in dependent columns, whatever they hold."""
        return self.xp.where(self.live[:, None] > 0, gradient, self.dtype.type(0))

    def outer(self, a: Any, b: Any) -> Any:
        """Return the gradient by Q: the sum over the samples of  a (x) b."""
        return self.masked(self.multiply(b.T, a))

    def mirror(self, z: Any) -> Any:
        """Return copyltu(-Z^T)."""
        return -(self.xp.triu(z) + self.xp.triu(z, 1).T)

    def pull_back(self, gradient: Any) -> Any:
        """Return the gradient by the basis, (gQ + Q S) R^-T."""
        return self._finish(gradient, self.multiply(self.q, gradient.T))

    def _finish(self, gradient: Any, z: Any) -> Any:
        total = gradient + self.multiply(self.mirror(z), self.q)
        return self.divide(total, transposed=True)

    def tangent(self, hbasis: Any) -> tuple[Any, Any, Any]:
        """Return W = h R^-1, T, and  dQ = W - Q T,  for a cotangent h of the basis."""
        w = self.divide(self.masked(self.columns(hbasis)), transposed=False)
        overlap = self.multiply(self.q, w.T)
        t = self.xp.triu(overlap) + self.xp.tril(overlap, -1).T
        return w, t, w - self.multiply(t.T, self.q)

    def pull_back_second(self, first: Any, second: Any, w: Any, t: Any) -> Any:
        """Return the gradient by the basis of <h, pull_back(first)>, plus pull_back(second)."""
        s = self.mirror(self.multiply(self.q, first.T))
        second = second + self.multiply(s, w) - self.multiply(t, first)
        whole = first + self.multiply(s, self.q)
        z = self.multiply(w, whole.T) + self.multiply(self.q, second.T)
        return self._finish(second, z)

    def second(self, a: Any, b: Any, ha: Any, hb: Any, da: Any, db: Any) -> None:
        """Compute the gradients of the derivative of F along ha, hb and hbasis."""
        hbasis, dbasis, add = self.a.hbasis, self.a.dbasis, self.a.accumulate
        by_a = [] if hb is None or da is None else [self.multiply(hb, self.q)]
        by_b = [] if ha is None or db is None else [self.multiply(ha, self.q.T)]
        if hbasis is not None:
            w, t, dq = self.tangent(hbasis)
            by_a += [] if da is None else [self.multiply(b, dq)]
            by_b += [] if db is None else [self.multiply(a, dq.T)]
        if da is not None:
            put(da, by_a, add)
        if db is not None:
            put(db, by_b, add)
        if dbasis is None:
            return
        second = self.rt.zeros((self.k, self.n), self.dtype)
        if ha is not None:
            second += self.outer(ha, b)
        if hb is not None:
            second += self.outer(a, hb)
        if hbasis is None:
            found = self.pull_back(second)
        else:
            found = self.pull_back_second(self.outer(a, b), second, w, t)
        self.store(dbasis, found, add=add)

    def by_sample(self, a: Any, b: Any, gbasis: Any) -> None:
        """Store each sample's packed gradient, (a b^T + Q copyltu(-b y^T)) R^-T with y = Q^T a."""
        live = self.live > 0
        b = self.xp.where(live, b, self.dtype.type(0))
        y = self.multiply(a, self.q.T)
        z = y[:, :, None] * b[:, None, :]
        s = -(self.xp.triu(z) + self.xp.triu(z, 1).swapaxes(1, 2))
        total = self.multiply(s, self.q) + b[:, :, None] * a[:, None, :]
        put(gbasis.reshape(total.shape), [self.divide(total, transposed=True)], self.a.accumulate)
