"""Forward passes against the references."""

import pytest

from .cases import CASES
from .compare import assert_close
from .reference import reference


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case):
    problem = case.problem()
    assert_close(problem.run("forward"), reference(problem, "forward"), 1e-12)
