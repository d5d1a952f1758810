"""Several reductions at once on arrays of each library, against those of NumPy."""

import numpy as np
import pytest

import pyops

SRC, DST = [0, 1, 2, 2, 0], [1, 2, 0, 1, 1]
X = np.random.default_rng(0).standard_normal((3, 4))
REDUCE = "mean", "std", "max"
GY = np.cos(np.arange(36)).reshape(3, 3, 4)


def expected():
    graph = pyops.Graph(SRC, DST)
    y = pyops.aggregate(graph, X, reduce=REDUCE)
    return np.stack(y), pyops.aggregate.backward(graph, X, gy=(*GY,), reduce=REDUCE)[0]


def assert_expected(*found):
    for one, other in zip(found, expected(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
def test_torch(compiled):
    torch = pytest.importorskip("torch")
    import pyops.torch as pt

    graph = pt.Graph(SRC, DST)

    def function(x):
        return torch.stack(pt.aggregate(graph, x, reduce=REDUCE))

    if compiled:
        torch._dynamo.reset()
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    x = torch.from_numpy(X).requires_grad_()
    y = function(x)
    y.backward(torch.from_numpy(GY))
    assert_expected(y.detach(), x.grad)
    with pytest.raises(ValueError, match=r"^pyops.torch.aggregate: reduce: expected different"):
        pt.aggregate(graph, x, reduce=("sum", "sum"))


def test_jax():
    jax = pytest.importorskip("jax")
    import pyops.jax as pj

    graph = pj.Graph(SRC, DST)
    with jax.enable_x64(True):
        x = jax.numpy.asarray(X)
        y, vjp = jax.vjp(jax.jit(lambda x: pj.aggregate(graph, x, reduce=REDUCE)), x)
        assert_expected(np.stack(y), *vjp(tuple(map(jax.numpy.asarray, GY))))
        with pytest.raises(ValueError, match=r"^pyops.jax.aggregate: reduce: expected names"):
            pj.aggregate(graph, x, reduce=("sum", "mode"))


def test_device(monkeypatch):
    from pyops.cuda import _device

    from .cuda.host import COMPILER
    from .cuda.platform import Platform, to_device

    if COMPILER is None:
        pytest.skip("no C++ compiler")
    made = Platform()
    monkeypatch.setattr(_device, "found", lambda: made)
    graph, x, gy = pyops.Graph(SRC, DST).to_device(), to_device(X), tuple(map(to_device, GY))
    y = pyops.aggregate(graph, x, reduce=REDUCE)
    gx = pyops.aggregate.backward(graph, x, gy=gy, reduce=REDUCE)[0]
    assert_expected(np.stack([np.array(a) for a in y]), np.array(gx))
