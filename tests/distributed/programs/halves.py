"""Arrays of half precision on ranks: results are those of float32, rounded once."""

import sys

import ml_dtypes
import numpy as np

import pyops
from pyops.distributed import Communicator, _halo

from ...support import cases
from .graphs import refused
from .shares import OVER_POINTS, Points, shared_problem

TYPES = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def narrowed(problem, dtype):
    """Return the problem with arrays of half precision."""
    return problem.map(lambda a: a.astype(np.float32).astype(dtype))


def widened(problem):
    return problem.map(lambda a: a.astype(np.float32))


def equal(found, expected, dtype):
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == dtype
            assert np.array_equal(a, b.astype(dtype), equal_nan=True)


def operators():
    """Every operator on a graph, also on pairs of edges, in all phases."""
    comm = Communicator()
    for number, case in enumerate(map(cases.representative, cases.OPERATORS)):
        if not cases.OPERATORS[case.op].signature.has_graph:
            continue
        _, shares = shared_problem(comm, case, number)
        own = shares.of_problem(_)
        for dtype in TYPES:
            narrow = narrowed(own, dtype)
            for phase in cases.PHASES:
                with np.errstate(all="ignore"):  # products exceed float16
                    equal(narrow.run(phase), widened(narrow).run(phase), dtype)


def mixed():
    """Parameters in float32 beside features in half precision, and the reverse."""
    comm = Communicator()
    problem, shares = shared_problem(comm, cases.representative("gno_conv"), 1)
    own = widened(shares.of_problem(problem))
    for dtype in TYPES:
        features = {n: own.arrays[n].astype(dtype) for n in ("features", "hfeatures", "gy")}
        for half in features, {"params": own.arrays["params"].astype(dtype)}:
            given = own.having(**half)
            exact = given.map(lambda a: a.astype(np.float32))
            found, expected = given.run("backward"), exact.run("backward")
            for name, a, b in zip(own.op.signature.inputs, found, expected, strict=True):
                assert a.dtype == given.arrays[name].dtype
                assert np.array_equal(a, b.astype(a.dtype))


def outputs():
    """`out` and `accumulate` in the types of the results."""
    comm = Communicator()
    problem, shares = shared_problem(comm, cases.representative("aggregate"), 2)
    own = narrowed(shares.of_problem(problem), TYPES[1])
    expected = own.run("forward")[0]
    out = np.ones_like(expected)
    assert own.run("forward", out=out)[0] is out
    assert np.array_equal(out, expected)
    text = "out: expected an array of bfloat16, got float32"
    with refused(TypeError, text):
        own.run("forward", out=out.astype(np.float32))


def points():
    """Operators over points, and reductions."""
    comm = Communicator()
    rng = np.random.default_rng(3)
    for name in OVER_POINTS:
        problem = cases.representative(name).problem(points=20, modes=3)
        own = Points(comm, rng, 20)
        for dtype in TYPES:
            narrow = narrowed(problem, dtype)
            for phase in cases.PHASES:
                equal(own.run(narrow, phase), own.run(widened(narrow), phase), dtype)
    for dtype in TYPES:
        x = rng.standard_normal((4 + comm.rank, 3)).astype(dtype)
        for op in pyops.sum, pyops.mean, pyops.max:
            equal([op(comm, x, axis=0)], [op(comm, x.astype("f"), axis=0)], dtype)


def methods():
    """`exchange` and `take` keep the bits, `accumulate` and `sum` add in float32."""
    comm = Communicator()
    _, shares = shared_problem(comm, cases.representative("aggregate"), 4)
    graph, rng = shares.graph, np.random.default_rng(comm.rank)
    for dtype in TYPES:
        x = rng.standard_normal((graph.num_src, 3)).astype(dtype)
        full = rng.standard_normal((graph.local.num_src, 3)).astype(dtype)
        equal([graph.exchange(x)], [graph.exchange(x.astype("f"))], dtype)
        equal([graph.accumulate(full)], [graph.accumulate(full.astype("f"))], dtype)
        last = np.arange(comm.sum(len(x)))[::-1]
        equal([comm.take(x, last)], [comm.take(x.astype("f"), last)], dtype)
        equal(
            [comm.sum(x[:0].sum(0) + dtype.type(0.1))],
            [comm.sum(np.full(3, dtype.type(0.1), "f"))],
            dtype,
        )
    if comm.size > 1:
        types = TYPES if comm.rank == 0 else TYPES[::-1]
        with refused(ValueError, "rank 1: DistributedGraph.exchange: x: expected the call of"):
            graph.exchange(np.zeros((graph.num_src, 3), types[0]))
        with refused(ValueError, "rank 1: aggregate: expected the call of rank 0"):
            pyops.aggregate(graph, np.zeros((graph.num_src, 3), types[0]))


def messages():
    """Ghosts of features are fetched as 16-bit integers."""
    comm = Communicator()
    _, shares = shared_problem(comm, cases.representative("aggregate"), 5)
    sent = []
    right = _halo.Transfer.fetch
    _halo.Transfer.fetch = lambda self, own: sent.append(own.dtype.itemsize) or right(self, own)
    x = np.ones((shares.graph.num_src, 2), np.float16)
    pyops.aggregate(shares.graph, x)
    _halo.Transfer.fetch = right
    assert sent == [2]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
