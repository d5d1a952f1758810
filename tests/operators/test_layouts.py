"""Every memory layout of the inputs, and the layout of results."""

import numpy as np
import pytest

from ..support.cases import EVERY, PHASES, representative
from ..support.compare import assert_same
from ..support.layouts import LAYOUTS

every_phase = pytest.mark.parametrize("phase", PHASES)
every_operator = pytest.mark.parametrize("name", EVERY)
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.mark.parametrize("layout", LAYOUTS)
@every_dtype
@every_phase
@every_operator
def test_inputs(name, phase, dtype, layout):
    problem = representative(name).problem().map(dtype)
    expected = problem.run(phase)
    assert_same(problem.map(LAYOUTS[layout]).run(phase), expected)


@every_phase
@every_operator
def test_broadcast_inputs(name, phase):
    problem = representative(name).problem().map(lambda a: np.broadcast_to(a.ravel()[0], a.shape))
    assert_same(problem.run(phase), problem.map(np.array).run(phase))


@every_dtype
@every_phase
@every_operator
def test_results(name, phase, dtype):
    problem = representative(name).problem().map(dtype)
    for array in problem.map(LAYOUTS["byte-swapped"]).run(phase):
        assert type(array) is np.ndarray
        assert array.dtype == dtype
        assert array.dtype.isnative
        assert array.flags.c_contiguous
        assert array.flags.writeable


@every_phase
@every_operator
def test_inputs_stay(name, phase):
    problem = representative(name).problem()
    before = problem.map(np.copy)
    problem.run(phase)
    for array in problem.map(LAYOUTS["read-only"]).run(phase):
        array += 1
    assert_same(problem.arrays.values(), before.arrays.values())


@every_operator
def test_one_array_in_several_places(name):
    problem = representative(name).problem()
    inputs = {name: problem.arrays[name] for name in problem.names("forward")}
    again = {"h" + name: array for name, array in inputs.items()}
    copies = {name: array.copy() for name, array in again.items()}
    for phase in "double_backward", "jvp":
        assert_same(problem.having(**again).run(phase), problem.having(**copies).run(phase))
