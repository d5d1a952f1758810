"""Limits of the device: copies, matrix products, and row gathers, in float32."""

from pathlib import Path

import cupy
import numpy as np

import pyops
from benchmarks.cuda.device import wait
from benchmarks.cuda.timing import seconds
from pyops.cuda import _device

SIZE, SIDE = 1 << 30, 8192
PRODUCTS = ("f", "highest"), ("f", "tf32x3"), ("f", "tf32"), ("d", "highest")
SOURCE = Path(__file__).with_name("gather.cu")
UNROLLED = 2, 4, 8
SHAPES = (32, 4), (32, 8), (64, 1), (64, 2), (64, 4)
"""Threads along a row, and rows per block."""


def copy_rate():
    """Return the bytes read and written per second."""
    x = cupy.ones(SIZE // 4, np.float32)
    y = cupy.empty_like(x)
    return 2 * x.nbytes / seconds(lambda: cupy.copyto(y, x), wait)


def product_rates():
    """Return the additions and multiplications per second, by type and precision."""
    runtime, rates = _device.found().runtime, {}
    for kind, precision in PRODUCTS:
        a = cupy.ones((SIDE, SIDE), kind)
        took = seconds(lambda a=a, p=precision: runtime.matmul(a, a, precision=p), wait)
        rates[f"{a.dtype} {precision}"] = 2 * SIDE**3 / took
    return rates


def gathers(problem):
    """Return the seconds to gather and sum source rows, by several kernels."""
    case = problem.case
    columns = max(1, case.heads) * case.width
    rng = np.random.default_rng(0)
    x = cupy.asarray(rng.standard_normal((case.nodes, columns), np.float32))
    src, offsets = (
        cupy.asarray(problem.graph[name].astype(np.int32)) for name in ("src", "offsets")
    )
    graph = pyops.Graph(problem.graph["src"], problem.graph["dst"], case.nodes, case.nodes)
    graph = graph.to_device()
    expected = pyops.aggregate(graph, x).get()
    calls = {"pyops.aggregate": lambda: pyops.aggregate(graph, x)}
    y, place = cupy.empty_like(x), cupy.asarray(np.arange(len(src), dtype=np.int32))
    for unrolled in UNROLLED:
        kernel = cupy.RawKernel(
            SOURCE.read_text(), "gather", ("--std=c++17", f"-DUNROLL={unrolled}")
        )
        for threads, rows in SHAPES:

            def launch(src, x, kernel=kernel, threads=threads, rows=rows):
                grid, sizes = (-(-case.nodes // rows), 1), (case.nodes, columns // 4)
                args = *map(np.int64, sizes), offsets, src, x, y
                kernel(grid, (threads, rows), args)
                return y

            name = f"a kernel, {threads} by {rows} threads, {unrolled} entries at once"
            calls[name] = lambda launch=launch: launch(src, x)
    calls["take and sum"] = lambda: launch(place, cupy.take(x, src, axis=0))
    took = {}
    for name, call in calls.items():
        got = call().get()
        if not np.allclose(got, expected, 1e-4, 1e-4):
            raise RuntimeError(f"{name} gathers other rows than the operator")
        took[name] = seconds(call, wait, 0.05)
    return took


def bytes_gathered(case):
    """Return the bytes of source rows read, of destination rows written, and of the indices."""
    row = 4 * max(1, case.heads) * case.width
    return (case.edges + case.nodes) * row + 4 * (case.edges + case.nodes)
