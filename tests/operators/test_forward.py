"""Forward passes against the references."""

import pytest

from ..reference import reference
from ..support.cases import CASES
from ..support.compare import assert_close


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case):
    problem = case.problem()
    assert_close(problem.run("forward"), reference(problem, "forward"), 1e-12)
