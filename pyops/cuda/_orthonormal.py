"""B = Q R and the derivatives of Q. Tall matrices are stored column by column, [modes, points].

Encoding and decoding are derivatives of  F = sum over the samples of  a^T Q b:  one has input a
and cotangent b, the other input b and cotangent a.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._array import DeviceArray, required, store

if TYPE_CHECKING:
    from ._declared import OnoDecode, OnoEncode, Orthonormalize
    from ._runtime import Runtime


class Orthonormal:
    """Q and R of the basis of a call."""

    def __init__(self, rt: Runtime, a: OnoDecode | OnoEncode | Orthonormalize) -> None:
        self.rt, self.a, self.xp = rt, a, rt.xp
        self.n, self.k, self.dtype = a.points, a.modes, a.basis.dtype
        self.q = self.columns(a.basis)
        self.r = rt.zeros((self.k, self.k), self.dtype)
        self.independent = rt.empty(self.k, self.dtype)
        args = self.q, self.r, self.independent, self.n, self.k
        rt.launch("orthonormal", "gram_schmidt", self.dtype, 1, 512, args, 8 * self.k)

    def columns(self, basis: DeviceArray) -> DeviceArray:
        """Return a copy of a basis, given in either of its forms."""
        if self.a.packed:
            return basis.reshape(self.k, self.n).copy()
        return self.xp.array(basis.reshape(self.n, self.k).T, order="C", copy=True)

    def store(self, out: DeviceArray, columns: DeviceArray) -> None:
        """Store a gradient in the form of the basis."""
        if self.a.packed:
            store(out.reshape(self.k, self.n), [columns], self.a.accumulate)
        else:
            store(out.reshape(self.n, self.k), [columns.T], self.a.accumulate)

    def multiply(self, left: DeviceArray, right: DeviceArray) -> DeviceArray:
        return self.rt.matmul(left, right, precision=self.a.precision)

    def divide(self, x: DeviceArray, transposed: bool) -> DeviceArray:
        """Compute x R^-1 or x R^-T in place, also for a stack of matrices."""
        matrices = x.size // (self.n * self.k)
        args = x, self.r, matrices, self.n, self.k, transposed
        self.rt.launch("orthonormal", "divide", self.dtype, -(-matrices * self.n // 128), 128, args)
        return x

    def masked(self, gradient: DeviceArray) -> DeviceArray:
        """Return the gradient with 0 in dependent columns, whatever they hold."""
        return self.xp.where(self.independent[:, None] > 0, gradient, self.dtype.type(0))

    def outer(self, a: DeviceArray | None, b: DeviceArray | None) -> DeviceArray:
        """Return the gradient by Q: the sum over the samples of  a (x) b."""
        return self.masked(self.multiply(required(b).T, required(a)))

    def mirror(self, z: DeviceArray) -> DeviceArray:
        """Return copyltu(-Z^T)."""
        return -(self.xp.triu(z) + self.xp.triu(z, 1).T)

    def vjp(self, gradient: DeviceArray) -> DeviceArray:
        """Return the gradient by the basis, (gQ + Q S) R^-T."""
        return self._finish(gradient, self.multiply(self.q, gradient.T))

    def _finish(self, gradient: DeviceArray, z: DeviceArray) -> DeviceArray:
        total = gradient + self.multiply(self.mirror(z), self.q)
        return self.divide(total, transposed=True)

    def tangent(self, hbasis: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Return W = h R^-1, T, and  dQ = W - Q T,  for a cotangent h of the basis."""
        w = self.divide(self.masked(self.columns(hbasis)), transposed=False)
        overlap = self.multiply(self.q, w.T)
        t = self.xp.triu(overlap) + self.xp.tril(overlap, -1).T
        return w, t, w - self.multiply(t.T, self.q)

    def vjp_second(
        self, first: DeviceArray, second: DeviceArray, w: DeviceArray, t: DeviceArray
    ) -> DeviceArray:
        """Return the gradient by the basis of <h, vjp(first)>, plus vjp(second)."""
        s = self.mirror(self.multiply(self.q, first.T))
        second = second + self.multiply(s, w) - self.multiply(t, first)
        whole = first + self.multiply(s, self.q)
        z = self.multiply(w, whole.T) + self.multiply(self.q, second.T)
        return self._finish(second, z)

    def second(
        self,
        a: DeviceArray | None,
        b: DeviceArray | None,
        ha: DeviceArray | None,
        hb: DeviceArray | None,
        da: DeviceArray | None,
        db: DeviceArray | None,
    ) -> None:
        """Compute the gradients of the derivative of F along ha, hb and hbasis."""
        hbasis, dbasis, accumulate = self.a.hbasis, self.a.dbasis, self.a.accumulate
        tangent = None if hbasis is None else self.tangent(hbasis)
        if da is not None:
            by_a = [] if hb is None else [self.multiply(hb, self.q)]
            by_a += [] if tangent is None else [self.multiply(required(b), tangent[2])]
            store(da, by_a, accumulate)
        if db is not None:
            by_b = [] if ha is None else [self.multiply(ha, self.q.T)]
            by_b += [] if tangent is None else [self.multiply(required(a), tangent[2].T)]
            store(db, by_b, accumulate)
        if dbasis is None:
            return
        second = self.rt.zeros((self.k, self.n), self.dtype)
        if ha is not None:
            second += self.outer(ha, b)
        if hb is not None:
            second += self.outer(a, hb)
        if tangent is None:
            self.store(dbasis, self.vjp(second))
        else:
            self.store(dbasis, self.vjp_second(self.outer(a, b), second, *tangent[:2]))

    def by_sample(self, a: DeviceArray | None, b: DeviceArray | None, gbasis: DeviceArray) -> None:
        """Store each sample's packed gradient, (a b^T + Q copyltu(-b y^T)) R^-T with y = Q^T a."""
        a, b = required(a), self.xp.where(self.independent > 0, required(b), self.dtype.type(0))
        y = self.multiply(a, self.q.T)
        z = y[:, :, None] * b[:, None, :]
        s = -(self.xp.triu(z) + self.xp.triu(z, 1).swapaxes(1, 2))
        total = self.divide(self.multiply(s, self.q) + b[:, :, None] * a[:, None, :], True)
        store(gbasis.reshape(total.shape), [total], self.a.accumulate)
