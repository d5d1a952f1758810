from types import SimpleNamespace

from .._orthonormal import Orthonormal
from .._runtime import Runtime
from .._terms import put


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    put(a.y, [f.multiply(a.u, f.q.T)], a.accumulate)


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    if a.gu is not None:
        put(a.gu, [f.multiply(a.gy, f.q)], a.accumulate)
    if a.gbasis is not None:
        f.store(a.gbasis, f.pull_back(f.outer(a.u, a.gy)), add=a.accumulate)


def by_sample(rt: Runtime, a: SimpleNamespace) -> None:
    f = Orthonormal(rt, a)
    if a.gu is not None:
        put(a.gu, [f.multiply(a.gy, f.q)], a.accumulate)
    if a.gbasis is not None:
        f.by_sample(a.u, a.gy, a.gbasis)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    Orthonormal(rt, a).second(a.u, a.gy, a.hu, None, a.du, a.dgy)
