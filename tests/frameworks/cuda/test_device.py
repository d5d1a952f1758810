"""Tests that need a real device, beside the table: `pytest tests/frameworks/cuda --device`."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyops
from pyops.blocks import pack_gno, unpack_gno
from pyops.compat import pylibcugraphops
from pyops.compat.pylibcugraphops import operators

from ...support.broadcasts import FUNCTIONS, PAIRS, problem
from ...support.cases import PHASES, representative
from ...support.compare import assert_close, assert_same
from ...support.graphs import drawn
from . import on_device
from .host import Host
from .test_elementwise import calls, listed

every_phase = pytest.mark.parametrize("phase", PHASES)
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def back(results):
    return [None if a is None else on_device.back(a) for a in listed(results)]


@every_phase
@every_dtype
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype, phase):
    p = problem(name, "pairs", dtype)
    got = back(p.map(on_device.move).run(phase))
    assert_close(got, p.run(phase), 64 * np.finfo(dtype).eps)


@every_phase
@every_dtype
@pytest.mark.parametrize("pair", PAIRS)
def test_broadcasting(pair, dtype, phase):
    p = problem("multiply", pair, dtype)
    got = back(p.map(on_device.move).run(phase))
    assert_close(got, p.run(phase), 64 * np.finfo(dtype).eps)


@every_dtype
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions(name, axis, dtype):
    op, rng = getattr(pyops, name), np.random.default_rng(0)
    x, h = (rng.standard_normal((300, 70, 130)).astype(dtype) for _ in range(2))
    gy = np.asarray(rng.standard_normal(np.shape(op(x, axis=axis)))).astype(dtype)
    for phase, arrays in calls(op, x, gy, h):
        expected = listed(phase(*arrays, axis=axis))
        assert_close(back(phase(*map(on_device.move, arrays), axis=axis)), expected, 5e-6)


LARGE = {
    "gno_conv": ((5000, 5000, 100_000), {}),
    "gat": ((5000, 5000, 200_000), {}),
    "transformer_conv": ((5000, 5000, 200_000), {}),
    "dimenet_aggregate": ((2000, 2000, 20_000), {}),
    "ono_encode": ((1, 1, 64), {"points": 1000, "modes": 32, "width": 8}),
}


@every_phase
@pytest.mark.parametrize("op", LARGE)
def test_runs_are_equal_to_the_last_bit(op, phase):
    graph, widths = LARGE[op]
    p = representative(op).problem(drawn(*graph), **widths).map(np.float32)
    with on_device.on_device(Host()):
        expected = p.run(phase)
        for _ in range(10):
            assert_same(p.run(phase), expected)


WIDE = dict.fromkeys(("in_features", "out_features", "columns", "width", "channels", "x_width"), 32)


@every_dtype
@pytest.mark.parametrize("op", [name for name in on_device.MODULES if name in on_device.OPERATORS])
def test_arrays_may_begin_anywhere(op, dtype, monkeypatch):
    """Arrays may start at any multiple of an element, also if rows are read by vectors of four."""
    move = on_device.move

    def displaced(array):
        if not isinstance(array, np.ndarray):
            return move(array)
        padded = move(np.concatenate([np.zeros(1, array.dtype), array.ravel()]))
        return padded[1:].reshape(array.shape)

    case = representative(op)
    p = case.problem(**({} if op == "kernel_conv" else WIDE)).map(dtype)
    for phase in PHASES:
        with on_device.on_device(Host()):
            expected = p.run(phase)
            with monkeypatch.context() as patch:
                patch.setattr(on_device, "move", displaced)
                got = p.run(phase)
                out = [None if a is None else np.zeros_like(a) for a in expected]
                single = phase in ("forward", "jvp")
                into = p.run(phase, out=out[0] if single else out)
        for found in got, into:
            assert_close(found, expected, 1000 * np.finfo(dtype).eps)


def test_the_current_stream_is_used():
    """Work runs on the caller's current stream, after the work queued there."""
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.zeros(1 << 26, np.float32)
        for _ in range(20):
            x += 1
        y = pyops.negative(x)
        y += 20
        stream.synchronize()
    assert not y.any()


def test_the_stream_of_a_low_level_call_is_used():
    import cupy

    nodes = 1 << 20
    graph = pylibcugraphops.make_csc(np.arange(nodes + 1), np.arange(nodes)[::-1].copy())
    y, stream = cupy.zeros((nodes, 32), np.float32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        x = cupy.zeros((nodes, 32), np.float32)
        for _ in range(20):
            x += 1
    operators.agg_simple_n2n_fwd(y, x, graph, stream_id=stream.ptr)
    stream.synchronize()
    assert (y == 20).all()


def test_threads():
    """Concurrent calls of several threads do not interfere in caches."""
    p = representative("gno_conv").problem(drawn(500, 500, 5000))
    graph, arrays = p.graph.to_device(), [*map(on_device.move, p.inputs)]
    expected = on_device.back(p.op(graph, *arrays, **p.options))

    def call(_):
        return on_device.back(p.op(p.graph.to_device(), *arrays, **p.options))

    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(call, range(16)):
            assert_same([got], [expected])


def test_graphs_and_blocks():
    """Graphs and blocks of device arrays, and through pickle."""
    graph, x = drawn(9, 7, 60), np.ones((9, 3))
    there = pyops.Graph(on_device.move(graph.src), on_device.move(graph.dst), 9, 7)
    expected = pyops.aggregate(graph, x)
    for some in there.to_device(), pickle.loads(pickle.dumps(there.to_device())):
        assert_close(back(pyops.aggregate(some, on_device.move(x))), [expected], 1e-15)
    parts = [np.random.default_rng(0).random(shape) for shape in ((3, 2), (3,), (4, 3), (4,))]
    block = pack_gno(*map(on_device.move, parts))
    assert_same(back(tuple(unpack_gno(block, dim=2, hidden=3))), parts)


@pytest.mark.parametrize(("precision", "most"), [("tf32", 4e-3), ("tf32x3", 4e-6)])
@pytest.mark.parametrize("op", ["gno_conv", "kernel_conv", "ono_encode"])
def test_precision(op, precision, most):
    p = representative(op).problem(drawn(500, 500, 5000)).map(np.float32)
    expected = p.map(np.float64).run("backward")
    with on_device.on_device(Host()):
        assert_close(p.run("backward", precision=precision), expected, most)


def test_too_little_memory():
    import cupy

    x = cupy.zeros(1, np.float32)
    with pytest.raises(MemoryError, match="multiply: not enough memory on device 0"):
        pyops.multiply(cupy.broadcast_to(x, (1 << 39,)), x)
