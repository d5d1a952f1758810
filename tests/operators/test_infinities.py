"""Comparisons treat infinities like other values: extremes, and softmax of minus infinity.

A comparison does not distinguish an infinity from a finite value larger than all others, so results
are those with such a value in its place.
"""

from dataclasses import replace

import numpy as np
import pytest

from pyops.compat import pylibcugraphops
from pyops.compat.pylibcugraphops import operators
from pyops.compat.pylibcugraphops.operators import AggOp

from ..support.broadcasts import REDUCTIONS
from ..support.cases import PHASES, VARIANTS

BEYOND = 2.0**60
EXTREMES = [
    case for case in VARIANTS if dict(case.choices).get("reduce") in ("max", "min", "amax", "amin")
]
PLAIN = [case for case in EXTREMES if "weight" in case.absent]
GRAPHS = "isolated nodes", "shared edges", "hubs"
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def spread(rng, shape, dtype):
    """Return values, a third of them ordinary, the others dominant with either sign.

    The first and the last column have dominant values only, of one sign each.
    """
    x = rng.standard_normal(shape)
    kinds = rng.integers(-1, 2, shape)
    if len(shape) > 1 and shape[-1]:
        kinds[:, 0], kinds[:, -1] = -1, 1
    return np.where(kinds == 0, x, BEYOND * kinds).astype(dtype)


def infinite(x):
    """Replace the dominant values by infinities."""
    return None if x is None else np.where(abs(x) < BEYOND**0.5, x, np.copysign(np.inf, x))


def assert_same_but_infinite(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, infinite(b).astype(a.dtype))


@both_types
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_extremes_of_messages(case, graph, phase, dtype, rng):
    problem = replace(case, graph=graph).problem().map(dtype)
    drawn = {
        name: spread(rng, problem.arrays[name].shape, dtype)
        for name in ("x", "edge")
        if problem.arrays[name] is not None
    }
    expected = problem.having(**drawn).run(phase)
    got = problem.having(**{name: infinite(a) for name, a in drawn.items()}).run(phase)
    assert_same_but_infinite(got, expected)


@both_types
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("case", [c for c in EXTREMES if c not in PLAIN], ids=str)
def test_extremes_of_weighted_messages(case, graph, dtype, rng):
    problem = replace(case, graph=graph).problem().map(dtype)
    arrays = {n: problem.arrays[n] for n in ("x", "edge") if problem.arrays[n] is not None}
    weight = np.exp2(rng.integers(-3, 3, problem.arrays["weight"].shape)).astype(dtype)
    drawn = {n: spread(rng, a.shape, dtype) for n, a in arrays.items()} | {"weight": weight}
    expected = problem.having(**drawn).run("forward")
    got = problem.having(**{n: infinite(a) for n, a in drawn.items()}).run("forward")
    assert_same_but_infinite(got, expected)


@both_types
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_over_axes(name, axis, dtype, rng):
    op = REDUCTIONS[name]
    for shape in (3, 4, 5), (30, 2, 70), (2, 40, 1100):
        x = spread(rng, shape, dtype)
        np.testing.assert_array_equal(op(infinite(x), axis=axis), infinite(op(x, axis=axis)))
        gy, h = rng.standard_normal(op(x, axis=axis).shape), rng.standard_normal(shape)
        for phase, other in ("backward", gy.astype(dtype)), ("jvp", h.astype(dtype)):
            run = getattr(op, phase)
            got, expected = (run(a, other, axis=axis) for a in (infinite(x), x))
            np.testing.assert_array_equal(got, expected)


@both_types
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_softmax_of_minus_infinity(graph, phase, dtype, rng):
    """The weight is 0; rows without any other score are NaN and do not affect others."""
    (case,) = (case for case in VARIANTS if case.op == "segment_softmax")
    problem = replace(case, graph=graph).problem().map(dtype)
    logits = problem.arrays["logits"]
    ids = problem.graph.edge_ids
    for columns in 1, logits.shape[1]:
        some = problem.map(lambda a, n=columns: np.ascontiguousarray(a[:, :n]))
        z = some.arrays["logits"].copy()
        z[rng.random(z.shape) < 0.5] = -BEYOND
        finite = np.zeros((problem.graph.num_dst, columns), bool)
        np.logical_or.at(finite, problem.graph.dst, abs(z[ids]) < BEYOND)
        whole = finite[problem.graph.dst]
        expected, got = (some.having(logits=a).run(phase) for a in (z, infinite(z)))
        for a, b, rows in zip(got, expected, some.result_rows(phase), strict=True):
            spoilt = np.zeros(a.shape, bool)
            if rows == "num_entries":
                spoilt = ~whole
            else:
                np.logical_or.at(spoilt, ids, ~whole)
            assert np.isnan(a[spoilt]).all()
            np.testing.assert_array_equal(a[~spoilt], b[~spoilt])


@both_types
@pytest.mark.parametrize("op", [AggOp.Max, AggOp.Min])
@pytest.mark.parametrize("messages", ["n2n", "e2n", "n2n_e2n"])
@pytest.mark.parametrize("own", ["simple", "concat"])
def test_extremes_of_pylibcugraphops(own, messages, op, dtype, rng):
    offsets = np.array([0, 3, 3, 4, 9])
    graph = pylibcugraphops.make_csc(offsets, rng.integers(0, 4, 9), np.arange(9))
    x, edge = spread(rng, (4, 5), dtype), spread(rng, (9, 3), dtype)
    name = f"agg_{own}_{messages}"
    given = {"n2n": [x], "e2n": [edge], "n2n_e2n": [x, edge]}[messages]
    given += [x] if name == "agg_concat_e2n" else []
    dims = (5, 3) if name == "agg_concat_n2n_e2n" else ()
    width = sum(a.shape[1] for a in given) + (5 if dims or name == "agg_concat_n2n" else 0)
    results = []
    for arrays in given, [infinite(a) for a in given]:
        y = np.full((4, width), np.nan, dtype)
        location = np.zeros((4, {"n2n": 5, "e2n": 3, "n2n_e2n": 8}[messages]), np.int32)
        getattr(operators, f"{name}_fwd")(y, *arrays, graph, *dims, op, location)
        results.append((y, location))
    (expected, places), (got, others) = results
    np.testing.assert_array_equal(got, infinite(expected))
    np.testing.assert_array_equal(others, places)
