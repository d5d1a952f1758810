"""First and second derivatives against the references, and against finite differences."""

import pytest

from pyops.testing import check_gradients

from ..reference import reference
from ..support.cases import CASES, PHASES, SOFTMAX, VARIANTS
from ..support.compare import assert_close
from ..support.graphs import shared

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_variant = pytest.mark.parametrize("case", VARIANTS, ids=str)


def tolerance(case):
    """Return the relative tolerance; derivatives of a deviation are divided by it."""
    if ("reduce", "std") in case.choices:
        return 1e-10
    return 1e-11 if case.graph == "hubs" and case.op in SOFTMAX else 1e-12


@pytest.mark.parametrize("phase", ["backward", "double_backward", "jvp"])
@every_case
def test_against_reference(case, phase):
    problem = case.problem()
    assert_close(problem.run(phase), reference(problem, phase), tolerance(case))


@every_variant
def test_each_cotangent_alone(case):
    problem = case.problem()
    cotangents = ["h" + name for name in problem.op.signature.inputs]
    full = {phase: problem.run(phase) for phase in ("double_backward", "jvp")}
    for kept in cotangents:
        alone = problem.having(**{name: None for name in cotangents if name != kept})
        for phase in "double_backward", "jvp":
            assert_close(alone.run(phase), reference(alone, phase), tolerance(case), full[phase])


@every_variant
def test_graphs_of_equal_sizes_by_turns(case):
    """Results cached for one graph are not used for another of equal sizes."""
    src, dst = [0, 1, 2, 2, 0], [1, 1, 0, 2, 2]
    graphs = [shared(src, dst, ids, 3, 3, 5) for ids in ([4, 2, 0, 1, 3], [1, 1, 0, 4, 1])]
    close = 1e-5 if ("reduce", "std") in case.choices else 1e-12  # a deviation is 2e-6
    for problem in [case.problem(graph) for graph in graphs] * 2:
        for phase in PHASES:
            assert_close(problem.run(phase), reference(problem, phase), close)


@every_variant
def test_against_differences(case):
    problem = case.problem()
    check_gradients(problem.op, *problem.arguments("forward"), **problem.options)
