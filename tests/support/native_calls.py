"""Compares the kernels that `pyops.torch` loads with NumPy, and shows which calls they compute.

python -m tests.support.native_calls STEP, of which it compares every case in so many
"""

import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

import pyops
import pyops.torch as pt
from pyops.torch import _library
from pyops.torch._call import Call

from . import cpp_calls
from .cases import CASES, OPERATORS

NODES, WIDTH = 50, 8
MOST = 2**14
"""Entries of a graph up to which the kernels compute a call."""
counted = []
"""Phases that Python has computed."""
in_python = Call.run


def run(call, phase, *arguments):
    counted.append(phase)
    return in_python(call, phase, *arguments)


def example(edges=200, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(NODES, (2, edges), generator=generator)
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    return pt.Graph(src, dst, num_src=NODES, num_dst=NODES), x


def called(function, *arguments):
    """Return the result and the phases that Python computed for it."""
    counted.clear()
    found = function(*arguments)
    return found, counted.copy()


def aggregate(graph, x):
    sizes = graph.num_src, graph.num_dst, graph.num_edges
    return torch.ops.pyops.aggregate(*graph._tensors, *sizes, x, *REST)


REST = None, None, None, "sum", 1.0, 1.0


def compiled():
    """Compiled functions, with derivatives of both orders, are computed without Python."""
    graph, x = example()
    edges = graph.num_entries

    def energy(x, weight):
        messages = pt.edge_difference(graph, x, x) * weight
        return (pt.aggregate(graph, x, messages).square()).sum()

    weight = torch.linspace(0, 1, edges)[:, None]
    with_gradient = torch.compile(energy, fullgraph=True)
    x.requires_grad_()
    expected = torch.autograd.grad(energy(x, weight), x)
    with_gradient(x, weight).backward()  # compiles
    x.grad = None
    _, phases = called(lambda: with_gradient(x, weight).backward())
    assert not phases, phases
    assert torch.equal(x.grad, expected[0])
    with torch.inference_mode():
        value = with_gradient(x, weight)
        again, phases = called(with_gradient, x, weight)
    assert not phases, phases
    assert value == again == energy(x, weight)


def eager():
    """Derivatives of both orders, of several cotangents together, are computed without Python."""
    graph, x = example(dtype=torch.float64)
    x.requires_grad_()

    def energy(x):
        return pt.aggregate(graph, x.square()).square().sum()

    def second():
        (first,) = torch.autograd.grad(energy(x), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)

    found, phases = called(second)
    assert not phases, phases
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(_library, "FEW_ENTRIES", -1)
        expected, phases = called(second)
    assert set(phases) == {"forward", "backward", "double_backward"}, phases
    assert torch.equal(found[0], expected[0])
    y = pt.aggregate(graph, x)
    basis = torch.eye(y.numel(), dtype=y.dtype)[:4].reshape(4, *y.shape)
    (several,) = torch.autograd.grad(y, x, basis, is_grads_batched=True, retain_graph=True)
    one_by_one = [torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in basis]
    assert torch.equal(several, torch.stack(one_by_one))


def passed_on():
    """Calls that the kernels do not take have the results of Python."""
    graph, x = example()
    y, phases = called(aggregate, graph, x)
    assert not phases
    right = pyops.aggregate(graph, x.numpy())
    assert np.array_equal(y.numpy(), right)
    y, phases = called(aggregate, graph, x.bfloat16())
    assert phases == ["forward"]
    np.testing.assert_allclose(y.float().numpy(), right, 1e-2, 0.1)
    y, phases = called(aggregate, graph, torch._neg_view(x))
    assert phases == ["forward"]
    assert torch.equal(y, -aggregate(graph, x))
    nodes = pt.Graph(graph.src, graph.dst, num_src=2**18, num_dst=NODES)
    for large, rows in (example(MOST + 1)[0], x), (nodes, x.new_ones(2**18, 1)):
        y, phases = called(aggregate, large, rows)
        assert phases == ["forward"]
        assert np.array_equal(y.numpy(), pyops.aggregate(large, rows.numpy()))
    batch = torch.stack([x, -x])
    mapped = torch.vmap(lambda x: aggregate(graph, x))(batch)
    assert torch.equal(mapped, torch.stack([aggregate(graph, x), aggregate(graph, -x)]))
    _, tangent = torch.func.jvp(lambda x: aggregate(graph, x), (x,), (x,))
    assert torch.equal(tangent, aggregate(graph, x))
    gradient = torch.func.grad(lambda x: (aggregate(graph, x) * x).sum())(x)
    reverse = pt.Graph(graph.dst, graph.src, num_src=NODES, num_dst=NODES)
    torch.testing.assert_close(gradient, aggregate(graph, x) + aggregate(reverse, x))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = aggregate(graph, mode.from_tensor(x))
    assert fake.shape == x.shape
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x: aggregate(graph, x))(x)
    assert "pyops.aggregate" in traced.code
    assert torch.equal(traced(x), aggregate(graph, x))


def forked():
    """Children compute, whatever other threads of the parent were doing."""
    graph, x = example()
    right, stop = pt.aggregate(graph, x), threading.Event()

    def pack():
        while not stop.is_set():
            aggregate(example()[0], x)

    threads = [threading.Thread(target=pack) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(30):
                child = os.fork()
                if not child:
                    signal.alarm(20)
                    os._exit(not torch.equal(pt.aggregate(graph, x), right))
                assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def out_of_memory():
    with pytest.raises(MemoryError, match="lno_decode: not enough memory for the results"):
        torch.ops.pyops.lno_decode(torch.ones(10_000, 1), torch.ones(1), None, 2**31 - 1)


class EndedError(Exception):
    """Error of a signal handler."""


def interrupted():
    """A signal handler that raises ends a long call with its error."""

    def end(*_):
        raise EndedError

    def encode(poles):
        return torch.ops.pyops.lno_encode(values, torch.linspace(0, 1, poles), None)

    values = torch.ones(1024, 25_000)
    start = time.process_time()  # other programs do not change this time
    encode(256)
    part = time.process_time() - start
    signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, part / 20)
    start = time.process_time()
    with pytest.raises(EndedError):
        encode(64 * 256)  # handlers run every 0.1 s; the whole would take 64 times as long
    ended = time.process_time() - start
    assert ended < 20 * part, (ended, part)


def main(step):
    Call.run = run
    counted.clear()
    for number, case in enumerate(CASES[:: int(step)]):
        cpp_calls.compare(case, cpp_calls.TYPES[number % 2])
        graph = case.problem().graph
        assert bool(counted) == (graph is not None and graph.num_entries > MOST), str(case)
        counted.clear()
    refused = sum(map(cpp_calls.refuse_arrays, OPERATORS))
    assert not counted, counted
    for name in OPERATORS:
        cpp_calls.differentiate(name)
    assert not counted, counted
    for name in OPERATORS:
        cpp_calls.round_once(name)
    compiled()
    eager()
    passed_on()
    forked()
    out_of_memory()
    interrupted()
    print(f"{len(CASES)} cases, {refused} refusals")


if __name__ == "__main__":
    main(*sys.argv[1:])
