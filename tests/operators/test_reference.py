"""Checks of the references, element by element by complex step."""

from dataclasses import replace

import pytest

from ..reference import reference
from ..support.cases import VARIANTS
from ..support.compare import assert_close, inner
from ..support.complex_step import gradient

every_variant = pytest.mark.parametrize("case", VARIANTS, ids=str)


def gradients(problem, phase, cotangents, names):
    """Return the gradients of <cotangents, results of a reference phase> by the named arrays."""

    def slope(name):
        def function(array):
            return inner(cotangents, reference(problem.having(**{name: array}), phase))

        array = problem.arrays[name]
        return None if array is None else gradient(function, array)

    return [slope(name) for name in names]


@pytest.mark.parametrize("graph", ["random", "shared edges"])
@every_variant
def test_backward(case, graph):
    problem = replace(case, graph=graph).problem()
    expected = gradients(problem, "forward", [problem.arrays["gy"]], problem.names("forward"))
    assert_close(reference(problem, "backward"), expected, 1e-13)


@every_variant
def test_double_backward(case):
    problem = replace(case, graph="shared edges").problem()
    expected = gradients(problem, "backward", problem.cotangents, problem.names("backward"))
    assert_close(reference(problem, "double_backward"), expected, 1e-13)
