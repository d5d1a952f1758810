"""Results in arrays of the caller, overwritten or accumulated."""

import numpy as np
import pytest

import pyops

from ..support.cases import CASES, EVERY, PHASES, representative
from ..support.compare import assert_close, assert_same
from ..support.graphs import drawn
from ..support.layouts import LAYOUTS, strided

every_phase = pytest.mark.parametrize("phase", PHASES)
every_operator = pytest.mark.parametrize("name", EVERY)
every_layout = pytest.mark.parametrize(
    "layout", sorted(LAYOUTS.keys() - {"read-only", "byte-swapped"})
)


def run_into(problem, phase, out, **keywords):
    """Run a phase with these output arrays, and check that the same arrays are returned."""
    single = phase in ("forward", "jvp") and len(out) == 1
    results = problem.run(phase, out=out[0] if single else out, **keywords)
    for result, array in zip(results, out, strict=True):
        assert array is None or result is array
    return results


def like(arrays, fill, layout=np.array):
    """Return arrays of these shapes."""
    return [None if a is None else layout(fill(a)) for a in arrays]


@every_phase
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case(case, phase, rng):
    """Previous contents are completely overwritten, or completely accumulated to."""
    problem = case.problem()
    expected = problem.run(phase)
    out = like(expected, lambda a: np.full_like(a, np.nan))
    assert_same(run_into(problem, phase, out), expected)
    out = like(expected, lambda a: rng.standard_normal(a.shape))
    sums = [a if a is None else a + b for a, b in zip(out, expected, strict=True)]
    assert_close(run_into(problem, phase, out, accumulate=True), sums, 1e-14)


@every_layout
@every_phase
@every_operator
def test_overwritten(name, phase, layout):
    problem = representative(name).problem()
    expected = problem.run(phase)
    out = like(expected, lambda a: np.full_like(a, np.nan), LAYOUTS[layout])
    assert_same(run_into(problem, phase, out), expected)


@every_layout
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_phase
@every_operator
def test_added_to(name, phase, dtype, layout, rng):
    problem = representative(name).problem().map(dtype)
    expected = problem.run(phase)
    out = like(expected, lambda a: rng.standard_normal(a.shape).astype(dtype), LAYOUTS[layout])
    sums = [a + b for a, b in zip(out, expected, strict=True)]
    assert_close(run_into(problem, phase, out, accumulate=True), sums, 8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("width", [33, 256, 500])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_added_once(width, reduce, rng):
    """A sum of a thousand small terms is added once: a large value does not round each of them."""
    edges = 1000
    graph = pyops.Graph(np.arange(edges), np.zeros(edges, int), edges, 1)
    x = rng.random((edges, width), dtype=np.float32)
    there = np.full((1, width), 1e7, np.float32)
    sums = there + getattr(np, reduce)(x, axis=0, dtype=float)
    pyops.aggregate(graph, x, reduce=reduce, out=there, accumulate=True)
    assert np.abs(there - sums).max() <= 0.51 * np.spacing(np.float32(1e7))


@pytest.mark.parametrize("accumulate", [False, True, np.True_])
@pytest.mark.parametrize("phase", ["backward", "double_backward"])
@every_operator
def test_some_of_them(name, phase, accumulate):
    problem = representative(name).problem()
    expected = problem.run(phase)
    for kept in range(len(expected)):
        out = [np.zeros_like(a) if i == kept else None for i, a in enumerate(expected)]
        assert_close(run_into(problem, phase, out, accumulate=accumulate), expected, 1e-15)


@every_phase
@every_operator
def test_neighbours_stay(name, phase):
    problem = representative(name).problem()
    out = [strided(np.zeros_like(a)) for a in problem.run(phase)]
    run_into(problem, phase, out)
    for array in out:
        assert np.isnan(array.base).sum() == array.base.size - array.size


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("phase", ["backward", "double_backward"])
@every_operator
def test_in_place_of_inputs(name, phase, accumulate):
    """Gradients may overwrite the inputs, their cotangents or gy."""
    problem = representative(name).problem()
    names = problem.names("forward")
    if phase == "double_backward":
        names = [*("h" + name for name in names), *problem.seeds]
    before = [problem.arrays[name] for name in names]
    expected = problem.run(phase)
    if accumulate:
        expected = [a + b for a, b in zip(before, expected, strict=True)]
    overwritten = problem.map(np.copy)
    out = [overwritten.arrays[name] for name in names]
    assert_close(run_into(overwritten, phase, out, accumulate=accumulate), expected, 1e-14)


@pytest.mark.parametrize("shift", [0, 1, 5])
@pytest.mark.parametrize("phase", ["forward", "jvp"])
@every_operator
def test_overlapping_an_input(name, phase, shift):
    widths = {"dim": 9, "in_features": 3, "out_features": 3, "columns": 3, "points": 3, "heads": 1}
    widths |= {"x_width": 3, "edge_width": 2}
    problem = representative(name).problem(drawn(8, 8, 20), **widths)
    expected = problem.run(phase)
    alike = [n for n in problem.names(phase) if problem.arrays[n].size == expected[0].size]
    if not alike:
        pytest.skip("the output has a size of its own")
    for given in alike:
        array = problem.arrays[given]
        memory = np.zeros(array.size + shift)
        moved = memory[: array.size].reshape(array.shape)
        out = memory[shift:].reshape(expected[0].shape)
        moved[...] = array
        others = [None] * (len(expected) - 1)
        assert_same(run_into(problem.having(**{given: moved}), phase, [out, *others]), expected)
