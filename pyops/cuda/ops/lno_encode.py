from types import SimpleNamespace

from .._laplace import Laplace
from .._runtime import Runtime


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Laplace(rt, a)
    f.put(a.y, f.by_modes(a.u))


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Laplace(rt, a)
    if a.gu is not None:
        f.put(a.gu, f.by_points(a.gy))
    f.gradient(a.gy, a.u, a.gpoles)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    Laplace(rt, a).second(a.gy, a.u, None, a.hu, a.dgy, a.du)
