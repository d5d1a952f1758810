from types import SimpleNamespace

from .._laplace import Laplace
from .._runtime import Runtime


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Laplace(rt, a)
    f.put(a.y, f.by_points(a.x))


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    f = Laplace(rt, a)
    if a.gx is not None:
        f.put(a.gx, f.by_modes(a.gy))
    f.gradient(a.x, a.gy, a.gpoles)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    Laplace(rt, a).second(a.x, a.gy, a.hx, None, a.dx, a.dgy)
