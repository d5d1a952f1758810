"""Device operators, on the emulated device, against the compiled kernels: the whole table."""

from dataclasses import replace

import numpy as np
import pytest

from ...operators.test_bounds import fenced
from ...support.cases import CASES, OPERATORS, PHASES, VARIANTS, representative
from ...support.compare import assert_same
from ...support.graphs import drawn, shared
from ...support.rounding import bounds
from .host import COMPILER, Host
from .on_device import DEVICE, MODULES, on_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
every_phase = pytest.mark.parametrize("phase", PHASES)
HERE = [case for case in VARIANTS if case.op in MODULES]
TABLE = [case for case in CASES if case.op in MODULES]
BOTH = [(case, np.float64) for case in TABLE]
SINGLE = {case.graph for case in TABLE} if DEVICE else {"random", "hubs", "shared edges"}
BOTH += [(case, np.float32) for case in TABLE if case.graph in SINGLE]


def label(value):
    return getattr(value, "__name__", str(value))


def run(problem, phase, order=0, **keywords):
    with on_device(Host(order)):
        return problem.run(phase, **keywords)


def assert_within(got, expected, bound):
    for number, (a, b, most) in enumerate(zip(got, expected, bound, strict=True)):
        assert (a is None) == (b is None), f"result {number}"
        if a is not None:
            assert a.shape == b.shape, f"result {number}"
            wrong = ~(abs(a - b) <= most)
            assert not wrong.any(), f"result {number}: {abs(a - b)[wrong].max():.2e}"


@every_phase
@pytest.mark.parametrize(("case", "dtype"), BOTH, ids=label)
def test_every_case(case, dtype, phase):
    """float64 on every graph; float32 too on a device, otherwise on the most varied cases."""
    problem = case.problem().map(dtype)
    exact = problem.map(np.float64)
    bound = [None if b is None else 2 * b for b in bounds(exact, phase, dtype)]
    assert_within(run(problem, phase), exact.run(phase), bound)


WIDTHS = dict.fromkeys(("in_features", "out_features", "columns", "width", "channels"), 8)


@every_phase
@pytest.mark.parametrize("name", [n for n in MODULES if n in OPERATORS and n != "kernel_conv"])
def test_long_rows_read_by_vectors(name, phase):
    """Rows of several segments, of a width that is read by vectors."""
    problem = representative(name).problem(drawn(9, 3, 900), **WIDTHS)
    bound = [None if b is None else 2 * b for b in bounds(problem, phase, np.float64)]
    assert_within(run(problem, phase), problem.run(phase), bound)


def in_any_order(problem, phase, orders):
    alone = run(problem, phase)
    for order in orders:
        assert_same(run(problem, phase, order), alone)


@every_phase
@pytest.mark.parametrize("case", HERE, ids=str)
def test_order(case, phase):
    """No result depends on the order of blocks, warps and lanes."""
    in_any_order(case.problem().map(np.float32), phase, [1, 2])


def one_long_edge():
    """Return one edge of more entries than a segment, beside edges of few."""
    rng = np.random.default_rng(2)
    ids = np.concatenate([np.zeros(300, int), rng.integers(1, 30, 60)])
    return shared(rng.integers(0, 9, 360), np.sort(rng.integers(0, 7, 360)), ids, 9, 7, 30)


@every_phase
@pytest.mark.parametrize("graph", [lambda: drawn(9, 3, 900), one_long_edge], ids=["rows", "edges"])
@pytest.mark.parametrize("name", [name for name in MODULES if name in OPERATORS])
def test_order_of_pieces(name, graph, phase):
    """No result depends on the order, with rows summed in segments beside others."""
    problem = representative(name).problem(graph()).map(np.float32)
    in_any_order(problem, phase, [1, 2, 7])


@pytest.mark.parametrize("phase", ["backward", "double_backward"])
@pytest.mark.parametrize("case", HERE, ids=str)
def test_wanted(case, phase):
    """Each gradient alone equals the same gradient computed with the others."""
    problem = case.problem()
    every = run(problem, phase)
    names = [*problem.op.signature.inputs, "gy"]
    for number, (name, expected) in enumerate(zip(names, every, strict=False)):
        if expected is not None:
            got = run(problem, phase, wanted=[name])
            assert_same([got[number]], [expected])
            assert all(a is None for i, a in enumerate(got) if i != number)


@pytest.mark.parametrize("phase", ["double_backward", "jvp"])
@pytest.mark.parametrize("case", HERE, ids=str)
def test_one_cotangent(case, phase):
    """Absent cotangents count as 0."""
    full = case.problem()
    cotangents = ["h" + n for n in full.op.signature.inputs if full.arrays["h" + n] is not None]
    for kept in cotangents:
        problem = full.having(**{name: None for name in cotangents if name != kept})
        zeros = {n: np.zeros_like(full.arrays[n]) for n in cotangents if n != kept}
        bound = bounds(full.having(**zeros), phase, np.float64)
        bound = [None if b is None else 4 * b + 1e-13 for b in bound]
        assert_within(run(problem, phase), problem.run(phase), bound)


@every_phase
@pytest.mark.parametrize("case", HERE, ids=str)
def test_accumulate(case, phase):
    """Previous contents are completely overwritten, or completely accumulated to."""
    problem, rng = case.problem(), np.random.default_rng(0)
    expected = run(problem, phase)
    single = phase in ("forward", "jvp")
    out = [None if a is None else np.full_like(a, np.nan) for a in expected]
    assert_same(run(problem, phase, out=out[0] if single else out), expected)
    out = [None if a is None else rng.standard_normal(a.shape) for a in expected]
    sums = [None if a is None else a + b for a, b in zip(out, expected, strict=True)]
    most = [None if b is None else 1e-13 * abs(b).max(initial=1) for b in sums]
    got = run(problem, phase, out=out[0] if single else out, accumulate=True)
    assert_within(got, sums, most)


@pytest.mark.skipif(DEVICE, reason="of memory of this machine")
@pytest.mark.parametrize("end", [True, False], ids=["end", "start"])
@every_phase
@pytest.mark.parametrize("case", HERE, ids=str)
def test_fences(case, phase, end, monkeypatch):
    """No kernel reads or writes out of bounds, including work arrays."""

    def empty(self, shape, dtype):
        array = np.empty(shape, dtype)
        array.view(np.uint8).fill(0xFF) if array.size else None
        return fenced(array, end) if array.size else array

    monkeypatch.setattr(Host, "empty", empty)
    for shape in case, replace(case, widths="odd"):
        problem = shape.problem().map(lambda a: fenced(a.astype(np.float32), end))
        expected = problem.run(phase)
        out = [None if a is None else fenced(np.zeros_like(a), end) for a in expected]
        run(problem, phase, out=out[0] if phase in ("forward", "jvp") else out)


def test_every_room_is_tested():
    assert {case.op for case in TABLE} >= MODULES.keys() & OPERATORS.keys()
