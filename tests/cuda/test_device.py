"""What only a device can show, beside the table: `python -m pytest tests/cuda --device`."""

import numpy as np
import pytest

import pyops

from ..broadcasts import FUNCTIONS, problem
from ..cases import PHASES, representative
from ..compare import assert_close, assert_same
from ..graphs import drawn
from . import rooms
from .host import Host

every_phase = pytest.mark.parametrize("phase", PHASES)
LARGE = {"gno_conv": (5000, 5000, 100_000), "gat": (5000, 5000, 200_000)}


@every_phase
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype, phase):
    p = problem(name, "pairs", dtype)
    got = [a.get() for a in p.map(rooms.move).run(phase)]
    assert_close(got, p.run(phase), 64 * np.finfo(dtype).eps)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions(name, axis):
    x = np.random.default_rng(0).standard_normal((300, 70, 130))
    op = getattr(pyops, name)
    assert_close([op(rooms.move(x), axis=axis).get()], [op(x, axis=axis)], 1e-13)


@every_phase
@pytest.mark.parametrize("op", LARGE)
def test_runs_are_equal_to_the_last_bit(op, phase):
    p = representative(op).problem(drawn(*LARGE[op])).map(np.float32)
    with rooms.on_device(Host()):
        expected = p.run(phase)
        for _ in range(10):
            assert_same(p.run(phase), expected)


def test_the_current_stream_is_used():
    """Work waits for what the caller has queued before it, on a stream of the caller."""
    import cupy

    x = cupy.zeros(1 << 26, np.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(20):
            x += 1
        y = pyops.negative(x)
        y += 20
        stream.synchronize()
    assert not y.any()


def test_tensors():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no device")
    import pyops.torch as pt

    p = representative("gno_conv").problem()
    inputs = [torch.tensor(a, device="cuda", requires_grad=True) for a in p.inputs]
    y = pt.gno_conv(p.graph.to_device(), *inputs, **p.options)
    got = torch.autograd.grad(y, inputs, torch.tensor(p.arrays["gy"], device="cuda"))
    assert_close([y.detach().cpu().numpy()], p.run("forward"), 1e-12)
    assert_close([g.cpu().numpy() for g in got], p.run("backward"), 1e-12)
    with pytest.raises(TypeError, match="coords: expected an array on the device"):
        pt.gno_conv(p.graph.to_device(), inputs[0], inputs[1].cpu(), inputs[2], **p.options)


@pytest.mark.parametrize(("precision", "most"), [("tf32", 4e-3), ("tf32x3", 4e-6)])
def test_precision(precision, most):
    p = representative("gno_conv").problem(drawn(500, 500, 5000)).map(np.float32)
    expected = p.map(np.float64).run("backward")
    with rooms.on_device(Host()):
        assert_close(p.run("backward", precision=precision), expected, most)


def test_too_little_memory():
    import cupy

    x = cupy.zeros(1, np.float32)
    with pytest.raises(MemoryError, match="multiply: not enough memory on device 0"):
        pyops.multiply(cupy.broadcast_to(x, (1 << 39,)), x)
