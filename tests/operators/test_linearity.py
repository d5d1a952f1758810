"""Linearity of derivatives in their cotangents, large or small, and of sums in subnormal values."""

import numpy as np
import pytest

from ..support.cases import OPERATORS, VARIANTS
from ..support.compare import assert_close, assert_same

OF_FEATURES = [
    case
    for case in VARIANTS
    if OPERATORS[case.op].signature.has_graph and "features" in OPERATORS[case.op].signature.inputs
]


@pytest.mark.parametrize("phase", ["backward", "double_backward", "jvp"])
@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_linear_in_the_cotangents(case, phase, rng):
    """Results are linear in gy, and in all h together."""
    problem = case.problem()
    cotangents = ["h" + name for name in problem.op.signature.inputs]
    for names in ["gy"], cotangents:
        if not set(names) <= set(problem.names(phase)):
            continue
        given = {n: problem.arrays[n] for n in names if problem.arrays[n] is not None}
        other = {n: rng.standard_normal(a.shape) for n, a in given.items()}
        mixed = {n: 2 * a - 3 * other[n] for n, a in given.items()}
        runs = [problem.having(**arrays).run(phase) for arrays in (mixed, given, other)]
        if names == ["gy"] and phase == "double_backward":
            runs = [run[:-1] for run in runs]  # the gradient by gy does not depend on gy
        got, a, b = runs
        expected = [None if x is None else 2 * x - 3 * y for x, y in zip(a, b, strict=True)]
        assert_close(got, expected, 1e-13)


@pytest.mark.parametrize("scale", [2.0**300, 2.0**-300])
@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_huge_and_tiny_cotangents(case, scale):
    """A power of two changes only the exponents of results."""
    problem = case.problem()
    scaled = problem.having(gy=scale * problem.arrays["gy"])
    expected = [None if a is None else scale * a for a in problem.run("backward")]
    assert_same(scaled.run("backward"), expected)


@pytest.mark.parametrize("case", OF_FEATURES, ids=str)
def test_subnormal_numbers_count(case):
    problem = case.problem()
    name = next(n for n in ("features", "embedding") if n in problem.arrays)
    scaled = problem.having(**{name: problem.arrays[name] * 2.0**-1060})
    (y,), (tiny,) = problem.run("forward"), scaled.run("forward")
    assert 0 < abs(tiny).max() < np.finfo(float).tiny
    terms = 1 + problem.graph.num_entries * problem.arrays[name].shape[1] * 40
    assert abs(tiny - y * 2.0**-1060).max() <= terms * 5e-324
