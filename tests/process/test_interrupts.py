"""Ctrl-C interrupts long calls, and the interpreter survives."""

import gc
import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

import pyops

from ..support.cases import OPERATORS, PHASES, representative, variants
from ..support.compare import assert_same
from ..support.graphs import shared

pytestmark = pytest.mark.bare  # sanitizers slow the kernels down
DELAYS = 0.4, 0.2, 0.1, 0.05, 0.02  # until the signal, which has to arrive within the kernel
PROMISED = 0.5


SHORT = {"elem_scale", "segment_softmax", "aggregate", "degree_normalised"}
SHORT |= {name for name, op in OPERATORS.items() if op.signature.linear}
"""Operators that finish too soon."""
LONG = [name for name in OPERATORS if name not in SHORT]


def heavy(name):
    """Return a problem of small arrays with seconds of work in every phase."""
    every = [case for case in variants(OPERATORS[name]) if not case.absent]
    case = [case for case in every if "diagonal" not in str(case)][-1]
    if name == "gno_kernel":
        graph = pyops.Graph(*np.zeros((2, 20_000), int), 1)
        widths = {"hidden": 8192, "in_features": 16, "out_features": 16}
    elif name in ("edge_mlp", "edge_network"):
        graph = pyops.Graph(*np.zeros((2, 200_000), int), 1)
        widths = {"hidden": 256, "depth": 4}
    elif name == "gno_aggregate":
        ends = np.random.default_rng(0).integers(0, 100, (2, 4_000_000))
        graph = shared(*ends, np.zeros(len(ends[0]), int), 100, 100, 1)
        widths = {"in_features": 128, "out_features": 128}
    elif name in ("gat", "gat_v2", "transformer_conv"):
        ends = np.random.default_rng(0).integers(0, 500, (2, 2_000_000))
        graph = shared(*ends, np.zeros(len(ends[0]), int), 500, 500, 1)
        widths = {"width": 192}
    elif name == "hetero_basis":
        *ends, types = np.random.default_rng(0).integers(0, [[2000], [2000], [8]], (3, 300_000))
        graph = shared(*ends, types, 2000, 2000, 8)
        widths = {"num_bases": 64, "width": 128}
    elif name == "segment_matmul":
        graph = pyops.Graph(np.arange(8000), np.arange(8000) % 4, 8000, 4)
        widths = {"in_features": 2048, "out_features": 2048}
    elif name.startswith("lno"):
        graph = pyops.Graph(*np.zeros((2, 6000), int), 1)
        widths = {"points": 2500, "modes": 2500}
    elif name == "dimenet_aggregate":
        graph = pyops.Graph(*np.random.default_rng(0).integers(0, 500, (2, 50_000)))
        widths = {"num_spherical": 32, "channels": 128, "num_radial": 1, "middle": 64}
    elif "max_degree" in OPERATORS[name].signature.options:
        graph = pyops.Graph(*np.zeros((2, 200_000), int), 1)
        widths = {"max_degree": 30}
    elif "distances" in OPERATORS[name].signature.inputs:
        graph = pyops.Graph(*np.zeros((2, 200_000), int), 1)
        widths = {"num_radial": 150, "num_spherical": 4}
    elif "basis" in OPERATORS[name].signature.inputs:
        graph = pyops.Graph(*np.zeros((2, 10), int), 1)
        widths = {"points": 3000, "modes": 2000}
    else:
        graph = pyops.Graph(np.arange(60_000), np.arange(60_000))
        widths = {"hidden": 64, "in_features": 192, "out_features": 192, "columns": 192}
    return case.problem(graph, **widths)


@pytest.fixture(scope="module", params=LONG)
def problem(request):
    return heavy(request.param)


@pytest.fixture(autouse=True)
def heard():
    """Restore the handler, which background jobs ignore, and pause what loses exceptions.

    Callbacks and finalizers that the garbage collector runs print an exception and go on.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGINT, before)


def interrupted_after(call, delay):
    """Return the seconds from the signal to the exception; infinity if the call finished before."""
    sent, ended = [], []

    def run():
        call()
        ended.append(True)
        timer.join()
        time.sleep(1)

    def press():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(delay, press)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        return np.inf if ended else time.perf_counter() - sent[0]
    finally:
        timer.join()


def quickest(call, enough):
    """Return the best of several trials, as other programs may delay one."""
    seconds = np.inf
    for delay in DELAYS:
        seconds = min(seconds, interrupted_after(call, delay))
        if seconds < enough:
            break
    return seconds


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("phase", PHASES)
def test_interrupt(problem, phase, threads):
    pyops.set_num_threads(threads)
    assert quickest(lambda: problem.run(phase), PROMISED) < PROMISED
    small = representative(problem.op.name).problem()
    assert_same(small.run(phase), small.run(phase))


def test_interrupt_while_a_graph_is_packed():
    entries = np.random.default_rng(0).integers(0, 3_000_000, 30_000_000)
    graph = pyops.Graph(entries, entries[::-1])
    promised = 2 * PROMISED  # NumPy's share of the call responds at its end
    assert quickest(lambda: graph._indices(("in_edges", "out_edges")), promised) < promised


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(2**17, 2**17), (2**34,), (2**32, 4)])
def test_interrupt_of_sums(shape, threads):
    """All tiles add to one element, so there are few of them."""
    pyops.set_num_threads(threads)
    x = np.broadcast_to(np.float64(0.5), shape)
    one = np.ones((1,) * len(shape))
    call = partial(pyops.power.backward, x, one, x, wanted=["x2"])
    assert quickest(call, PROMISED) < PROMISED
