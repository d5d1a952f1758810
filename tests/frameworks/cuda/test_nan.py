"""A NaN affects the same results as on the CPU, and no others."""

import numpy as np
import pytest

from pyops import Graph

from ...operators.test_nan import WIDTHS, inside
from ...support.cases import OPERATORS, PAIRED, PHASES, representative, variants
from .host import COMPILER, Host
from .on_device import MODULES, on_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
NAMES = [n for n in MODULES if n in OPERATORS and OPERATORS[n].signature.has_graph]
TABLE = [representative(name) for name in NAMES if name not in PAIRED]
TABLE += [case for name in PAIRED if name in MODULES for case in variants(OPERATORS[name])]
ENDS = [1, 4, 1, 5, 3, 3, 6, 0], [3, 1, 6, 3, 1, 3, 4, 7]


def places(problem, phase):
    """Return every third element of all arrays of a phase."""
    elements = [(n, i) for n in problem.names(phase) for i, _ in np.ndenumerate(problem.arrays[n])]
    return elements[::3]


def put(problem, name, index, value):
    array = problem.arrays[name].copy()
    array[index] = value
    return problem.having(**{name: array})


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", TABLE, ids=str)
def test_nan(case, phase):
    problem = inside(case.problem(Graph(*ENDS, 7, 8), **WIDTHS))
    for array, index in places(problem, phase):
        spoilt = put(problem, array, index, np.nan)
        with on_device(Host()):
            got = spoilt.run(phase)
        for number, (a, b) in enumerate(zip(got, spoilt.run(phase), strict=True)):
            if b is not None:
                where = f"{array}{list(index)}, result {number}"
                assert (np.isnan(a) == np.isnan(b)).all(), where
