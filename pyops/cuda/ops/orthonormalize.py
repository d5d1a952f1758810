from types import SimpleNamespace

from .._orthonormal import Orthonormal
from .._runtime import Runtime


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    f.store(a.y, f.q, add=a.accumulate)


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    if a.gbasis is not None:
        f.store(a.gbasis, f.pull_back(f.masked(a.gy.T)), add=a.accumulate)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    found = w = dq = rt.zeros((a.modes, a.points), a.basis.dtype)
    if a.hbasis is not None:
        w, t, dq = f.tangent(a.hbasis)
    if a.dgy is not None:
        f.store(a.dgy, dq, add=a.accumulate)
    if a.dbasis is not None:
        if a.hbasis is not None:
            found = f.pull_back_second(f.masked(a.gy.T), found, w, t)
        f.store(a.dbasis, found, add=a.accumulate)
