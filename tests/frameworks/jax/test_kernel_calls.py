"""Calls of compiled programs of JAX reach their kernels without Python."""

import functools
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402
from pyops._call.operator import OPERATORS  # noqa: E402
from pyops.jax import _call  # noqa: E402

from ...support.programs import run  # noqa: E402
from .examples import Example  # noqa: E402


def forward(function, primals, tangents, cotangent):
    return function(*primals)


def jvp(function, primals, tangents, cotangent):
    return jax.jvp(function, primals, tangents)[1]


def backward(function, primals, tangents, cotangent):
    return jax.vjp(function, *primals)[1](cotangent)


def double_backward(function, primals, tangents, cotangent):
    """Return the derivative of the gradients along the tangents."""
    return jax.jvp(lambda *p: jax.vjp(function, *p)[1](cotangent), primals, tangents)[1]


PHASES = forward, jvp, backward, double_backward
BY_PYTHON = {"max": PHASES[1:], "min": PHASES[1:], "where": PHASES[3:], "clip": PHASES[3:]}
"""Phases of several kernels, or of none where derivatives are 0."""
CASES = [
    (name, kind)
    for name, op in OPERATORS.items()
    for kind in ("constant", "argument")[: 1 + op.signature.has_graph]
]
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def assert_same_bits(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.fixture
def without_python(monkeypatch):
    """Return a function after whose call the handler cannot call Python any more."""

    def enter(text):
        raise AssertionError("Python was entered")

    return lambda: monkeypatch.setattr(_call, "_decode", enter)


def prepare(name, phases, kind, dtype):
    """Return a compiled program of these phases and its arguments; the graph is one or is not."""
    example = Example(name)
    graph = None if example.graph is None else pj.Graph(example.graph)
    primals = tuple(p.astype(dtype) for p in example.primals)
    rng = np.random.default_rng(1)
    y = jax.eval_shape(example, *primals)
    *tangents, cotangent = [jnp.asarray(rng.standard_normal(a.shape), dtype) for a in (*primals, y)]

    def call(graph, *given):
        def function(*primals):
            first = [] if graph is None else [graph]
            return example.function(*first, *example.spread(primals), **example.options)

        return [phase(function, *given) for phase in phases]

    given = primals, tuple(tangents), cotangent
    if kind == "constant":
        return jax.jit(functools.partial(call, graph), compiler_options=QUICK), given
    return jax.jit(call, compiler_options=QUICK), (graph, *given)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_repeated_calls_do_not_enter_python(name, kind, without_python):
    phases = [phase for phase in PHASES if phase not in BY_PYTHON.get(name, ())]
    dtype = np.float32 if kind == "constant" else np.float64
    program, given = prepare(name, phases, kind, dtype)
    expected = program(*given)
    without_python()
    assert_same_bits(program(*given), expected)


@pytest.mark.parametrize("name", BY_PYTHON)
def test_other_phases_enter_python(name, without_python):
    for phase in BY_PYTHON[name]:
        program, given = prepare(name, [phase], "constant", np.float64)
        program(*given)
    without_python()
    with pytest.raises(Exception, match="Python was entered"):
        jax.block_until_ready(program(*given))


def graphs(count, num_nodes=20, num_edges=100):
    rng = np.random.default_rng(0)
    return [pj.Graph(*rng.integers(0, num_nodes, (2, num_edges)), num_nodes) for _ in range(count)]


def expected_sums(graph, x):
    src, dst = map(np.asarray, graph.indices)
    return pyops.aggregate(pyops.Graph(src, dst, len(x)), np.asarray(x))


def test_graphs_seen_before_do_not_enter_python(without_python):
    x, seen = jnp.asarray(np.random.default_rng(1).standard_normal((20, 3))), graphs(5)
    program = jax.jit(pj.aggregate)
    for graph in seen:
        program(graph, x)
    new = graphs(6)[-1]
    without_python()
    for graph in seen[::-1]:
        assert_same_bits(program(graph, x), expected_sums(graph, x))
    with pytest.raises(Exception, match="Python was entered"):
        jax.block_until_ready(program(new, x))


def test_constant_graphs_of_one_program():
    """Equal calls on different graphs of equal sizes, each constant, stay apart."""
    x, (one, other) = jnp.asarray(np.random.default_rng(1).standard_normal((20, 3))), graphs(2)
    program = jax.jit(lambda x: (pj.aggregate(one, x), pj.aggregate(other, x)))
    expected = expected_sums(one, x), expected_sums(other, x)
    for _ in range(3):
        assert_same_bits(program(x), expected)


def test_more_graphs_than_are_kept():
    """Plans of a graph that is no longer kept are rebuilt, for constants and arguments."""
    x, many = jnp.asarray(np.random.default_rng(1).standard_normal((20, 3))), graphs(70)
    argument, constant = jax.jit(pj.aggregate), jax.jit(lambda x: pj.aggregate(many[0], x))
    for graph in (*many, *many[:3]):
        assert_same_bits(argument(graph, x), expected_sums(graph, x))
        assert_same_bits(constant(x), expected_sums(many[0], x))
    assert len(_call._recent) <= _call._MOST_GRAPHS


def test_dtypes_of_indices():
    """Zeros of 8 bytes begin like zeros of 4."""
    x = jnp.asarray(np.random.default_rng(1).standard_normal((4, 2)))
    sizes = pj.Graph([0] * 4, [0] * 4, 4, 4).sizes
    program = jax.jit(pj.aggregate)
    for dtype, dst in (np.int32, [0, 0, 0, 0]), (np.int64, [0, 0, 1, 2]), (np.int32, [0, 1, 2, 3]):
        src = jnp.zeros(4, dtype)
        graph = pj.Graph.tree_unflatten(sizes, (src, jnp.asarray(dst, dtype)))
        for _ in range(2):
            assert_same_bits(program(graph, x), expected_sums(graph, x))


def test_contents_of_traced_graphs_are_checked_in_each_run():
    leaves, sizes = graphs(1)[0].tree_flatten()
    program, x = jax.jit(pj.aggregate), jnp.ones((20, 2))
    fitting = program(pj.Graph.tree_unflatten(sizes, leaves), x)
    wrong = leaves[0].at[3].set(20), leaves[1]
    for _ in range(2):
        with pytest.raises(Exception, match="src: expected indices from 0 to num_src-1=19, got 20"):
            program(pj.Graph.tree_unflatten(sizes, wrong), x).block_until_ready()
        assert_same_bits(program(pj.Graph.tree_unflatten(sizes, leaves), x), fitting)


def test_concurrent_calls():
    """Threads call programs with graphs that come and go, in teams of two, to equal bits."""
    rng = np.random.default_rng(1)
    many = graphs(60, 300, 9000)
    x = jnp.asarray(rng.standard_normal((300, 40)))
    program = jax.jit(jax.value_and_grad(lambda x, graph: (pj.aggregate(graph, x) ** 2).sum()))
    constant = jax.jit(jax.grad(lambda x: (pj.aggregate(many[0], x) ** 2).sum()))
    alone = [(program(x, graph), constant(x)) for graph in many]
    pyops.set_num_threads(2)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            found = pool.map(lambda graph: (program(x, graph), constant(x)), many)
            for one, other in zip(found, alone, strict=True):
                assert_same_bits(one, other)


@pytest.mark.bare
def test_memory_error():
    said = run("""
        import jax, pyops.jax
        jax.config.update("jax_enable_x64", True)
        graph, *wide = problem(2, 1, 3000, 3000, 1)
        wide = [*map(jax.numpy.asarray, wide)]
        program = jax.jit(lambda *arrays: pyops.jax.gno_conv(graph, *arrays, hidden=3000))
        pyops.set_num_threads(1)
        expected = program(*wide).block_until_ready()
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 2**20, -1))
        try:
            program(*wide).block_until_ready()
        except Exception as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert (program(*wide) == expected).all()
    """)
    assert said == "RESOURCE_EXHAUSTED: gno_conv: not enough memory for the working arrays\n"


def test_number_of_threads():
    """A call has the team that `set_num_threads`, threadpoolctl and OpenMP allow."""
    said = run(
        """
        import os
        import jax, pyops.jax
        from threadpoolctl import threadpool_limits
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        graph, *arrays = problem(300, 10, 16, 16, 16)
        arrays = [*map(jax.numpy.asarray, arrays)]
        program = jax.jit(lambda *arrays: pyops.jax.gno_conv(graph, *arrays, hidden=16))
        def started():
            before = len(os.listdir("/proc/self/task"))
            program(*arrays).block_until_ready()
            return len(os.listdir("/proc/self/task")) - before
        pyops.set_num_threads(1)
        program(*arrays).block_until_ready()
        found = [started()]
        pyops.set_num_threads(2)
        found.append(started())
        pyops.set_num_threads(4)
        with threadpool_limits(1, user_api="openmp"):
            found.append(started())
        found.append(started())
        print(*found)
        """,
        OMP_NUM_THREADS="4",
    )
    assert said == "0 1 0 2\n"


@pytest.mark.bare
def test_interrupt():
    """Ctrl-C ends a call, and other threads of Python run meanwhile: one of them sends it."""
    rng = np.random.default_rng(0)
    edges = 2_000_000  # seconds of work
    graph = pyops.Graph(*rng.integers(0, 6000, (2, edges)), 6000, 6000)
    arrays = [rng.standard_normal(n) for n in ((6000, 96), (edges, 3), 96 * 4 + 97 * 96 * 96)]
    given = [*map(jnp.asarray, arrays)]
    program = jax.jit(lambda *arrays: pj.gno_conv(graph, *arrays, hidden=96))
    program = program.lower(*given).compile()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(2):
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(Exception, match="CANCELLED"):
                program(*given).block_until_ready()
            timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert_same_bits(pj.tanh(jnp.ones(3)), pyops.tanh(np.ones(3)))
