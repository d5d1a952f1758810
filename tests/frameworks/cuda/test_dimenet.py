"""Edge-to-edge aggregation on the device beyond the table: sizes of several tiles."""

import numpy as np
import pytest

from pyops.cuda import _triplets

from ...support.cases import PHASES, representative, variants
from ...support.graphs import drawn
from .host import COMPILER, Host
from .on_device import OPERATORS, on_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
CASES = [*variants(OPERATORS["dimenet_aggregate"])]
SIZES = {
    "channels": {"channels": 70, "middle": 3},
    "middle": {"channels": 5, "middle": 19},
    "degrees": {"num_spherical": 13, "channels": 40},
    "most degrees": {"num_spherical": 32, "num_radial": 1},
}


def agree(problem, phase, tolerance=1e-11):
    expected = problem.run(phase)
    with on_device(Host(1)):
        got = problem.run(phase)
    for a, b in zip(got, expected, strict=True):
        if b is not None:
            assert abs(a - b).max(initial=0) <= tolerance * abs(b).max(initial=1)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("phase", PHASES)
def test_sizes(phase, sizes):
    agree(CASES[0].problem(drawn(6, 6, 40), **SIZES[sizes]), phase)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_few_warps(case, phase, monkeypatch):
    """Warps accumulate gradients by B over several entries."""
    monkeypatch.setattr(_triplets, "WARPS", 7)
    agree(case.problem(), phase)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_both_bases(phase, accumulate):
    problem = representative("dimenet_basis").problem()
    agree(problem, phase)
    shapes = [a.shape for a in problem.run(phase)]

    def into(shapes):
        return problem.run(phase, out=[np.ones(s) for s in shapes], accumulate=accumulate)

    with on_device(Host(1)):
        got = into(shapes)
    for a, b in zip(got, into(shapes), strict=True):
        assert abs(a - b).max() <= 1e-11 * abs(b).max()


@pytest.mark.parametrize("phase", PHASES)
def test_nodes_of_many_edges(phase):
    """Pairs are processed 32 at a time."""
    agree(CASES[0].problem(drawn(3, 3, 250)).map(np.float64), phase)
