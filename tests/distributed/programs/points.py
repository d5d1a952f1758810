"""Operators over points and reductions over rows, on distributed rows and on one rank."""

import contextlib
import itertools
import sys

import numpy as np
import pytest

import pyops
from pyops.distributed import Communicator, _points

from ...support import cases
from ...support.bases import bases
from .graphs import refused
from .shares import OVER_POINTS, REDUCTIONS, TOLERANCES, Points, points_of, problems, rows_of


def transforms():
    """All operators over points, phases and precisions; few and no points on some ranks."""
    comm = Communicator()
    for name, seed in itertools.product(OVER_POINTS, range(4)):
        rng = np.random.default_rng(seed)
        for problem in problems(name, seed):
            points = Points(comm, rng, points_of(problem))
            for dtype, tolerance in TOLERANCES.items():
                given = problem.map(lambda a, dtype=dtype: a.astype(dtype))
                condition = 1.0
                if "basis" in problem.arrays:
                    condition = np.linalg.cond(problem.arrays["basis"])
                elif "frequencies" in problem.arrays:
                    condition = 3.0  # sums of oscillations, whose terms exceed them
                points.compare(given, tolerance * condition)
            points.compare(problem, 1e-11, wanted=[problem.names("forward")[0]])
    infinite = pyops.lno_encode(comm, np.ones((1, 2)), np.array([np.inf, 0.0]))
    assert (infinite == [[1, 2 * comm.size]]).all()


def conditions():
    """Bases of any condition and with dependent columns behave as on one rank."""
    comm = Communicator()
    for seed in range(5):
        rng = np.random.default_rng(seed)
        points = Points(comm, rng, 60)
        for basis, condition in bases(rng, 60, 6):
            for name in "orthonormalize", "ono_encode", "ono_decode":
                problem = cases.representative(name).problem(seed=seed, points=60, modes=6)
                given = problem.having(basis=basis)
                sizes = np.linalg.norm(basis, axis=0)
                given = given.having(hbasis=problem.arrays["hbasis"] * sizes)
                (y,), (z,) = given.run("forward"), points.run(given, "forward")
                axis = rows_of(given.op._phases["forward"])[0]
                assert np.abs(z - points.of(y, axis)).max(initial=0) <= 5e-15 * condition
                if name == "orthonormalize":
                    assert (y.any(0) == (comm.sum(np.abs(z).sum(0)) > 0)).all()
                    gram = comm.sum(z.T @ z)
                    assert np.abs(gram - np.diag(y.any(0))).max() < 1e-14
                scaled = given
                if (sizes > 0).all() and condition == 10.0:  # gradients scale inversely
                    scaled = given.having(basis=basis / sizes, hbasis=problem.arrays["hbasis"])
                if condition < 1e5:
                    points.compare(scaled, 5e-15 * condition**2)


def reductions():
    """Sums, means and extremes, with ties on several ranks, over rows and other axes."""
    comm = Communicator()
    rng = np.random.default_rng(1)
    for dtype, tolerance in TOLERANCES.items():
        for _ in range(4):
            points = Points(comm, rng, 30)
            x = rng.integers(0, 5, (30, 3, 2)).astype(dtype)
            h = rng.standard_normal(x.shape).astype(dtype)
            for op, axis, keepdims in itertools.product(
                REDUCTIONS, (0, None, (0, 2), 1, (-3, 1)), (False, True)
            ):
                options = {"axis": axis, "keepdims": keepdims}
                rows = 0 if axis == 1 else None
                y = op(x, **options)
                g = rng.standard_normal(y.shape).astype(dtype)
                problem = cases.Problem(op, None, options, {"x": x, "gy": g, "hx": h})
                for phase in cases.PHASES:
                    expected = problem.run(phase)
                    own = problem.having(
                        x=points.of(x, 0), gy=points.of(g, rows), hx=points.of(h, 0)
                    )
                    function = op if phase == "forward" else getattr(op, phase)
                    arrays = [own.arrays[n] for n in problem.names(phase)]
                    got = function(comm, *arrays, **options)
                    got = got if isinstance(got, tuple) else (got,)
                    axes = [0, rows] if phase.endswith("backward") else [rows]
                    for a, b, n in zip(got, expected, axes, strict=False):
                        size = np.abs(b).max(initial=0)
                        b = points.of(b, n)
                        assert (a.dtype, a.shape) == (b.dtype, b.shape), (op, phase, options)
                        assert np.abs(a - b).max(initial=0) <= tolerance * max(size, 1)
    x = np.array([[1.0, np.nan, -np.inf]])[: comm.rank == 0]
    assert np.array_equal(pyops.max(comm, x, axis=0), [1, np.nan, -np.inf], equal_nan=True)
    assert np.isnan(pyops.mean(comm, x[:0], axis=0)).all()
    out = np.ones(3)
    assert pyops.sum(comm, np.ones((2, 3)), axis=0, out=out, accumulate=True) is out
    assert (out == 2 * comm.size + 1).all()


def gradients():
    """`check_gradients` passes for all of them, and finds a wrong derivative."""
    comm = Communicator()
    rng = np.random.default_rng([2, comm.rank])
    count = comm.rank + 3  # fewer points than modes on some ranks
    u, basis = rng.standard_normal((2, count)), rng.standard_normal((count, 3))
    x, poles = np.arange(6.0).reshape(2, 3) - 2, np.array([0.5, 1.0, 2.0])
    pyops.testing.check_gradients(pyops.orthonormalize, comm, basis)
    pyops.testing.check_gradients(pyops.ono_encode, comm, u, basis, rng=None)
    pyops.testing.check_gradients(pyops.ono_decode, comm, x, basis)
    pyops.testing.check_gradients(pyops.lno_encode, comm, u, poles)
    pyops.testing.check_gradients(pyops.lno_decode, comm, x, poles, points=count)
    for op, axis in itertools.product(REDUCTIONS, (0, 1, None)):
        pyops.testing.check_gradients(op, comm, basis, axis=axis)
    right, _points._added = _points._added, lambda terms: 2 * right(terms)
    with pytest.raises(AssertionError, match="by input 1"):
        pyops.testing.check_gradients(pyops.ono_encode, comm, u, basis)
    _points._added = right


def outputs():
    """`out` and `accumulate` write and add to own points."""
    comm = Communicator()
    rng = np.random.default_rng(3)
    for name in OVER_POINTS:
        problem = cases.representative(name).problem(points=20, modes=3)
        points = Points(comm, rng, 20)
        for phase in "backward", "double_backward":
            expected = points.run(problem, phase)
            for accumulate in False, True:
                out = [np.full_like(a, 3.0) for a in expected]
                found = points.run(problem, phase, out=out, accumulate=accumulate)
                for a, b, c in zip(found, out, expected, strict=True):
                    assert a is b
                    assert np.allclose(a, c + 3.0 * accumulate, 1e-13, 1e-13)


def refusals():
    """Errors name what was expected of all ranks."""
    comm = Communicator()
    last = comm.size - 1
    mine = comm.rank == last
    at = f"rank {last}: " if last else ""
    zero = "rank 0: " if last else ""
    basis, u = np.random.default_rng(comm.rank).standard_normal((4, 3)), np.ones((2, 4))
    with refused(
        ValueError, f"{at}ono_encode: basis: expected shape (points=4, modes), got (3, 3)"
    ):
        pyops.ono_encode(comm, u, basis[mine * 1 :])
    with refused(TypeError, f"{at}orthonormalize: basis: expected a NumPy array, got list"):
        pyops.orthonormalize(comm, [1.0] if mine else basis)
    many = np.ones((4, 4 * comm.size + 1))
    with refused(ValueError, f"{zero}orthonormalize: basis: expected modes <= points, got modes="):
        pyops.orthonormalize(comm, many)
    with refused(ValueError, f"{zero}orthonormalize: expected points on some rank, got none"):
        pyops.orthonormalize(comm, np.ones((0, 2)))
    with refused(ValueError, f"{zero}ono_encode: basis: expected shape (points, modes) with a"):
        pyops.ono_encode(comm, u, basis.reshape(-1))
    with refused(ValueError, f"{zero}ono_encode.backward: per_sample: expected False with"):
        pyops.ono_encode.backward(comm, u, basis, np.ones((2, 3)), per_sample=True)
    with refused(TypeError, f"{zero}aggregate: graph: expected DistributedGraph, got Communicator"):
        pyops.aggregate(comm, basis)
    with refused(TypeError, f"{zero}elem_scale: argument 0: expected an array, as the operator"):
        pyops.elem_scale(comm, basis, basis[0])
    with refused(ValueError, f"{at}lno_decode: points: expected an integer from 0 to"):
        pyops.lno_decode(comm, u, np.ones(4), points=-1 if mine else 4)
    with refused(ValueError, f"{at}sum: axis: expected axes from -2 to 1"):
        pyops.sum(comm, basis, axis=2 if mine else 0)
    with refused(ValueError, f"{zero}max: x: expected elements along axis on some rank, got none"):
        pyops.max(comm, basis[:0], axis=0)
    with refused(TypeError, f"{at}sum: axis: expected an integer"):
        pyops.sum(comm, basis, axis="rows" if mine else 0)
    with pytest.raises(TypeError, match="ono_encode: argument 1: expected an array, got Comm"):
        pyops.ono_encode(u, comm)
    with contextlib.suppress(TypeError):  # arrays have no names here
        pyops.orthonormalize(comm, basis=basis)
        pytest.fail("not reached")
    if last:
        with refused(ValueError, f"rank {last}: orthonormalize: expected the call of rank 0"):
            pyops.orthonormalize(comm, basis[:, : 3 - mine])
        with refused(ValueError, f"rank {last}: mean: expected the call of rank 0"):
            pyops.mean(comm, basis, axis=0 if mine else None)
    assert pyops.orthonormalize(comm, basis).shape == basis.shape


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
