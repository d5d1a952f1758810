"""Operators over ranks against the same operators on the whole graph, on one rank."""

import sys

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial import Delaunay

import pyops
from pyops.distributed import Communicator, _dispatch

from ...support import cases
from .shares import shared_problem

TOLERANCES = {np.float64: 5e-15, np.float32: 3e-6}
"""Of gradients, whose sums over ranks have another order; y is the same to the last bit."""


def first_axes(op, phase):
    """Return the name of the first axis of each result of a phase."""
    inputs = [i.shape[0].text for i in op.signature.inputs.values()]
    y = [op.signature.output[0].text]
    return {"backward": inputs, "double_backward": inputs + y}.get(phase, y)


def compare(comm, case, seed, graph=None):
    problem, shares = shared_problem(comm, case, seed, graph)
    own = shares.of_problem(problem)
    for dtype, tolerance in TOLERANCES.items():
        whole = problem.map(lambda a, dtype=dtype: a.astype(dtype))
        part = own.map(lambda a, dtype=dtype: a.astype(dtype))
        for phase in cases.PHASES:
            expected, got = whole.run(phase), part.run(phase)
            sizes = [np.abs(a).max(initial=0) for a in expected if a is not None]
            for axis, a, b in zip(first_axes(problem.op, phase), got, expected, strict=True):
                assert (a is None) == (b is None)
                if a is None:
                    continue
                b = shares.of(axis, b)
                if phase == "forward":
                    assert (a == b).all(), (str(case), "forward", np.abs(a - b).max())
                assert a.dtype == dtype
                assert a.shape == b.shape, (case, phase, a.shape, b.shape)
                error = np.abs(a - b).max(initial=0)
                assert error <= tolerance * max(sizes), (str(case), phase, axis, error, sizes)


def every(some):
    comm = Communicator()
    plain = [c for c in some if cases.OPERATORS[c.op].signature.has_graph]
    shared = "shared edges", "edges without entries"
    plain = [c for c in plain if c.op not in cases.PAIRED or c.graph not in shared]
    for number, case in enumerate(plain):
        compare(comm, case, number)
    if comm.rank == 0:
        print(len(plain), "cases")


def variants():
    every(cases.VARIANTS)


def graphs():
    large = "random", "hubs", "many rows", "thousands of rows"
    some = [c for c in cases.CASES if c.widths == "small" and c.graph not in large]
    every(some[MPI.COMM_WORLD.size % 3 :: 3])


def mesh():
    """Every operator on a triangulation of random points, numbered from left to right."""
    points = np.random.default_rng(0).random((300, 2))
    points = points[np.argsort(points[:, 0])]
    triangles = Delaunay(points).simplices
    ends = np.concatenate([triangles[:, [a, b]] for a in range(3) for b in range(3) if a != b])
    graph = pyops.Graph(*np.unique(ends, axis=0).T, len(points))
    comm = Communicator()
    for name, op in cases.OPERATORS.items():
        if op.signature.has_graph:
            compare(comm, cases.representative(name), 3, graph)


def outputs():
    """`out` and `accumulate` write and add to own rows."""
    comm = Communicator()
    for name in "gat", "gno_conv", "aggregate", "degree_normalised":
        problem, shares = shared_problem(comm, cases.representative(name), 0)
        part = shares.of_problem(problem)
        for phase in "backward", "double_backward":
            expected = part.run(phase)
            for accumulate in False, True:
                out = [None if a is None else np.full_like(a, 3.0) for a in expected]
                found = part.run(phase, out=out, accumulate=accumulate)
                for a, b, c in zip(found, out, expected, strict=True):
                    assert a is b
                    assert c is None or np.allclose(a, c + 3.0 * accumulate, 1e-13, 1e-13)
        (y,) = part.run("forward")
        out = np.ones_like(y)
        assert part.run("forward", out=out, accumulate=True)[0] is out
        assert np.allclose(out, y + 1, 1e-14)
        wanted = [problem.op.signature.positional[1]]
        only = part.run("backward", wanted=wanted)
        assert [a is not None for a in only] == [n in wanted for n in problem.op.signature.inputs]
        assert (only[0] == part.run("backward")[0]).all()


def attention():
    """Attention weights are in the order of the own entries."""
    comm = Communicator()
    for name in "gat", "gat_v2", "transformer_conv":
        problem, shares = shared_problem(comm, cases.representative(name), 1)
        part = shares.of_problem(problem)
        _, whole = problem.run("forward", return_attention=True)
        y, alpha = part.run("forward", return_attention=True)
        assert np.allclose(alpha, shares.of("num_entries", whole), 1e-13, 1e-13)
        assert (problem.op.forward(*part.arguments("forward"), **part.options)[0] == y).all()


def gradients():
    """`check_gradients` passes for every operator, and finds a wrong derivative."""
    comm = Communicator()
    names = [n for n, op in cases.OPERATORS.items() if op.signature.has_graph]
    for name in names:
        op = cases.OPERATORS[name]
        problem, shares = shared_problem(comm, cases.representative(name), 2)
        if name == "aggregate":
            problem = cases.replace(problem, options={"reduce": "mean"})
        part = shares.of_problem(problem)
        pyops.testing.check_gradients(op, *part.arguments("forward"), **part.options, rng=None)
    problem, shares = shared_problem(comm, cases.representative("gno_conv"), 3)
    part = shares.of_problem(problem)
    right, _dispatch._sum = _dispatch._sum, lambda *_: None
    if comm.size > 1:
        with pytest.raises(AssertionError, match="by input 2"):
            pyops.testing.check_gradients(
                pyops.gno_conv, *part.arguments("forward"), **part.options
            )
    _dispatch._sum = right


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
