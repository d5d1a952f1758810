from types import SimpleNamespace

from .._orthonormal import Orthonormal
from .._runtime import Runtime
from .._terms import put


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    put(a.y, [f.multiply(a.x, f.q)], a.accumulate)


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    if a.gx is not None:
        put(a.gx, [f.multiply(a.gy, f.q.T)], a.accumulate)
    if a.gbasis is not None:
        f.store(a.gbasis, f.pull_back(f.outer(a.gy, a.x)), add=a.accumulate)


def by_sample(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    if a.gx is not None:
        put(a.gx, [f.multiply(a.gy, f.q.T)], a.accumulate)
    if a.gbasis is not None:
        f.by_sample(a.gy, a.x, a.gbasis)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    Orthonormal(rt, a).second(a.gy, a.x, None, a.hx, a.dgy, a.dx)
