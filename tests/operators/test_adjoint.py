"""Identities between the phases, along random directions."""

from dataclasses import replace

import pytest

from ..support.cases import VARIANTS
from ..support.compare import assert_same, inner, norm

every_variant = pytest.mark.parametrize("case", VARIANTS, ids=str)


def directions(rng, problem, names):
    """Return random arrays of the shapes of those named."""
    arrays = {name: problem.arrays[name] for name in names}
    return {n: None if a is None else rng.standard_normal(a.shape) for n, a in arrays.items()}


@pytest.mark.parametrize("graph", ["random", "shared edges"])
@every_variant
def test_backward_is_the_transpose_of_jvp(case, graph, rng):
    problem = replace(case, graph=graph).problem()
    cotangents = ["h" + name for name in problem.op.signature.inputs]
    for _ in range(100):
        pair = problem.having(**directions(rng, problem, ["gy", *cotangents]))
        u, v = pair.cotangents, [pair.arrays["gy"]]
        ju, jtv = pair.run("jvp"), pair.run("backward")
        scale = max(norm(ju) * norm(v), norm(u) * norm(jtv))
        assert abs(inner(ju, v) - inner(u, jtv)) <= 1e-13 * scale


@every_variant
def test_second_derivatives_are_symmetric(case, rng):
    problem = case.problem()
    cotangents = ["h" + name for name in problem.op.signature.inputs]
    for _ in range(100):
        u, v = (problem.having(**directions(rng, problem, cotangents)) for _ in range(2))
        *hu, _ = u.run("double_backward")
        *hv, _ = v.run("double_backward")
        scale = max(norm(u.cotangents) * norm(hv), norm(v.cotangents) * norm(hu))
        assert abs(inner(u.cotangents, hv) - inner(v.cotangents, hu)) <= 1e-13 * scale


@every_variant
def test_gradient_by_gy_is_jvp(case):
    problem = case.problem()
    assert_same(problem.run("double_backward")[-1:], problem.run("jvp"))
