"""Features in half precision: device kernels read them as they are and compute in float32."""

from dataclasses import replace

import numpy as np
import pytest

from pyops import Graph
from pyops._call import half
from pyops._call.operator import OPERATORS
from pyops.cuda._array import HALVES

from ...operators.test_bounds import fenced
from ...operators.test_half import TYPES, only_parameters, rounded
from ...support.cases import PHASES, VARIANTS, representative
from ...support.compare import assert_same
from ...support.graphs import drawn
from ...support.rounding import bounds
from .host import COMPILER, Host
from .on_device import DEVICE, on_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
SIGNATURES = {name: op.signature for name, op in OPERATORS.items()}
READ = sorted(name for name, s in SIGNATURES.items() if s.half and s.half_on_devices)
IDENTITY = Graph(range(2**16), range(2**16), 2**16, 2**16)
EVERY = [case for case in VARIANTS if case.op in READ]
every_phase = pytest.mark.parametrize("phase", PHASES)
every_type = pytest.mark.parametrize("kind", TYPES)


class Recording(Host):
    """Device that records which types of features its kernels read."""

    def __init__(self, order=0):
        super().__init__(order)
        self.types = set()

    def _run(self, source, kernel, dtype, *arguments):
        self.types.add(dtype)
        super()._run(source, kernel, dtype, *arguments)


def narrow(problem, kind):
    """Return the problem with features and cotangents in half precision, all else in float32."""
    rows = {tag + name for name in problem.op.signature.half for tag in ("", "h")} | {"gy"}
    arrays = {
        name: None if a is None else rounded(a, kind if name in rows else np.float32)
        for name, a in problem.arrays.items()
    }
    return problem.having(**arrays)


def run(problem, phase, monkeypatch, order=0):
    """Run a phase on the device, where no features are converted."""
    device = Recording(order)
    with monkeypatch.context() as patched, on_device(device):
        patched.setattr(half, "widened", only_parameters)
        found = problem.run(phase)
    kinds = {a.dtype.name for a in problem.arrays.values() if half.is_half(a)}
    expected = {HALVES[half.TYPES[kind]] for kind in kinds}
    assert device.types & {*HALVES.values()} == expected or DEVICE
    return found


def assert_rounded(problem, phase, got):
    """Assert the float64 results of the same numbers, up to rounding errors and one rounding."""
    exact = problem.map(lambda a: a.astype(np.float64))
    pairs = zip(got, exact.run(phase), bounds(exact, phase, np.float32), strict=True)
    for number, (one, other, bound) in enumerate(pairs):
        assert (one is None) == (other is None), f"result {number}"
        if one is not None:
            low, high = (rounded(other + sign * 2 * bound, one.dtype) for sign in (-1, 1))
            assert ((low <= one) & (one <= high)).all(), f"result {number}"


@every_type
@every_phase
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_variant(case, phase, kind, monkeypatch):
    problem = narrow(case.problem(), kind)
    assert_rounded(problem, phase, run(problem, phase, monkeypatch))


@every_phase
@pytest.mark.parametrize("width", [16, 264])
@pytest.mark.parametrize("name", READ)
def test_long_rows_read_by_vectors(name, width, phase, monkeypatch):
    """Rows of several segments, of widths that are read by vectors: of one warp or of several."""
    sizes = dict.fromkeys(("width", "x_width", "edge_width", "own_width"), width)
    problem = representative(name).problem(drawn(9, 3, 900 if width == 16 else 40), **sizes)
    problem = narrow(problem, TYPES[-1])
    assert_rounded(problem, phase, run(problem, phase, monkeypatch))


@every_phase
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("width", [132, 134])
def test_columns_of_a_lane(width, reduce, phase, monkeypatch):
    """Columns of sums over rows are consecutive where rows are aligned, otherwise apart."""
    sizes = {"x_width": width, "edge_width": 36, "own_width": 4}
    problem = representative("aggregate").problem(drawn(9, 3, 900), **sizes)
    problem = narrow(replace(problem, options={"reduce": reduce}), TYPES[-1])
    assert_rounded(problem, phase, run(problem, phase, monkeypatch))


@every_phase
@pytest.mark.parametrize("name", READ)
def test_order(name, phase, monkeypatch):
    """No result depends on the order of blocks, warps and lanes."""
    problem = narrow(representative(name).problem(width=16, x_width=16), TYPES[-1])
    alone = run(problem, phase, monkeypatch)
    for order in 1, 2:
        assert_same(run(problem, phase, monkeypatch, order), alone)


@pytest.mark.skipif(DEVICE, reason="of memory of this machine")
@pytest.mark.parametrize("end", [True, False], ids=["end", "start"])
@every_phase
@pytest.mark.parametrize("name", READ)
def test_fences(name, phase, end, monkeypatch):
    """No kernel reads out of bounds."""
    for widths in "small", "odd":
        problem = narrow(replace(representative(name), widths=widths).problem(), TYPES[0])
        run(problem.map(lambda a: fenced(a, end)), phase, monkeypatch)


@every_type
@pytest.mark.parametrize("name", READ)
def test_zero_cotangents(name, kind, monkeypatch):
    """Absent cotangents of the result count as 0."""
    problem = narrow(representative(name).problem(), kind)
    zeros = problem.having(gy=np.zeros_like(problem.arrays["gy"]))
    got = run(problem.having(gy=None), "double_backward", monkeypatch)
    assert_same(got, run(zeros, "double_backward", monkeypatch))


@every_type
@pytest.mark.parametrize("name", [n for n in READ if OPERATORS[n].signature.attention])
def test_attention_weights(name, kind, monkeypatch):
    problem = narrow(representative(name).problem(), kind)
    wide = problem.map(lambda a: a.astype(np.float32))
    _, expected = wide.run("forward", return_attention=True)
    monkeypatch.setattr(half, "widened", only_parameters)
    with on_device(Recording()):
        _, found = problem.run("forward", return_attention=True)
    np.testing.assert_allclose(found.astype(np.float32), expected, 2**-8, 2**-24)


@every_type
def test_features_of_two_types_are_converted(kind):
    problem = narrow(representative("transformer_conv").problem(), kind)
    problem = problem.having(key=problem.arrays["key"].astype(np.float32))
    device = Recording()
    with on_device(device):
        found = problem.run("forward")
    assert_rounded(problem, "forward", found)
    assert not device.types & {*HALVES.values()}


def test_all_numbers():
    """Kernels widen every number of half precision as NumPy does."""
    for kind in TYPES:
        x = np.arange(2**16, dtype=np.uint16).view(kind)[:, None]
        with on_device(Recording()), np.errstate(all="ignore"):
            found = OPERATORS["aggregate"](IDENTITY, x)
        np.testing.assert_array_equal(found.astype(np.float32), x.astype(np.float32))


def test_the_host_has_no_kernels_for_float16():
    problem = narrow(representative("aggregate").problem(), np.float16)
    bits = [a.view(np.int16) for a in problem.inputs if half.is_half(a)]
    with pytest.raises(NotImplementedError, match=r"half: expected one of .* on the host"):
        problem.op.run("forward", [problem.graph, bits[0]], {}, half="fp16")
