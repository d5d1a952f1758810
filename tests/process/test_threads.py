"""Any number of threads gives the same bits."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyops

from ..support.cases import OPERATORS, PHASES, SOFTMAX, VARIANTS, representative
from ..support.compare import assert_same
from ..support.graphs import drawn, hubs, undirected

every_operator = pytest.mark.parametrize("name", OPERATORS)

# All loops have more operations than the threshold of a second thread.
GRAPHS = {
    "random": lambda: drawn(130, 150, 4000),
    "one long row": lambda: pyops.Graph(np.arange(9000) % 150, np.zeros(9000, int), 150, 130),
    "hubs": hubs,
    "shared edges": lambda: undirected(
        np.random.default_rng(2).integers(0, 130, (4000, 2)), 130, 4100
    ),
}
WIDTHS = {"hidden": 30, "in_features": 9, "out_features": 7, "columns": 7}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return GRAPHS[request.param]()


def same_bits(problem, numbers, repeats=1):
    for phase in PHASES:
        pyops.set_num_threads(1)
        alone = problem.run(phase)
        for number in numbers:
            pyops.set_num_threads(number)
            for _ in range(repeats):
                assert_same(problem.run(phase), alone)


@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_number_of_threads(case, graph):
    same_bits(case.problem(graph, **WIDTHS).map(np.float32), [2, 7])


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("name", sorted(SOFTMAX))
def test_number_of_threads_by_heads(name, heads, graph):
    """One head and eight heads have specialized loops."""
    widths = {"heads": heads, "width": 9, "edge_width": 3}
    same_bits(representative(name).problem(graph, **widths).map(np.float32), [2, 3])


@every_operator
def test_teams_at_once(name, graph):
    """Eight Python threads run at once, each with two OpenMP threads."""
    problem = representative(name).problem(graph, **WIDTHS)
    alone = [problem.run(phase) for phase in PHASES]
    pyops.set_num_threads(2)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            for phase, expected in zip(PHASES, alone, strict=True):
                for got in pool.map(problem.run, [phase] * 8):
                    assert_same(got, expected)


@pytest.mark.slow
@every_operator
def test_again_and_again(name, graph):
    same_bits(representative(name).problem(graph, **WIDTHS), [1, 2, 3, 4, 7, 16], repeats=100)
