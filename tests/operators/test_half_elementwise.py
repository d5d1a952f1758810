"""Elementwise functions, reductions and softmax whose kernels read and store bfloat16.

Their results are those of float32, rounded once, bit for bit.
"""

import numpy as np
import pytest

import pyops
from pyops._call import half

from ..support.cases import EVERY
from ..support.layouts import LAYOUTS
from ..support.small_cases import OPERATORS, arguments

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
NAMES = [n for n in OPERATORS if n not in EVERY]
PHASES = "forward", "backward", "double_backward", "jvp"
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.3e38, -3.3e38]
LAYOUT_NAMES = [n for n in LAYOUTS if n != "byte-swapped"]


def rounded(array):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array).astype(bfloat16)


def wide(array):
    return np.asarray(array).astype(np.float32)


def drawn(shape, seed, low=-2.0):
    rng = np.random.default_rng(seed)
    return rounded(rng.uniform(low, 2, shape))


def run(op, phase, inputs, options, **more):
    """Return the results of a phase, with cotangents drawn in bfloat16 and the inputs' type."""
    kind = inputs[0].dtype
    gy = drawn(op(*map(wide, inputs), **options).shape, 1).astype(kind)
    tangents = [drawn(a.shape, 2 + n).astype(kind) for n, a in enumerate(inputs)]
    given = {
        "forward": inputs,
        "backward": [*inputs, gy],
        "double_backward": [*inputs, gy, *tangents],
        "jvp": [*inputs, *tangents],
    }[phase]
    found = (op if phase == "forward" else getattr(op, phase))(*given, **options, **more)
    return list(found) if phase in ("backward", "double_backward") else [found]


def assert_rounded(got, expected):
    for one, other in zip(got, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == bfloat16
            assert other.dtype == np.float32
            assert one.shape == other.shape
            assert same(one, rounded(other))


def same(one, other):
    """Return whether arrays have the same bits, but for those of NaN."""
    nan = np.isnan(wide(other))
    bits = [a.view(np.int16)[~nan] for a in (one, other)]
    return np.isnan(wide(one)[nan]).all() and np.array_equal(*bits)


def refused(array):
    raise AssertionError(f"converted an array of shape {array.shape}")


@pytest.fixture
def unconverted(monkeypatch):
    """Return a function after which a call that widens an array fails."""
    return lambda: monkeypatch.setattr(half, "widened", refused)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_read_as_they_are(name, phase, unconverted):
    """Only the derivatives of extremes, which are compositions, convert their arrays."""
    op = OPERATORS[name]
    _, arrays, options = arguments(name)
    inputs = [rounded(a) for a in arrays]
    expected = run(op, phase, [wide(a) for a in inputs], options)
    if name not in ("max", "min") or phase == "forward":
        unconverted()
    assert_rounded(run(op, phase, inputs, options), expected)


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@pytest.mark.parametrize("shapes", [[(40, 300)] * 2, [(30, 4, 70), (70,)], [(300, 1), (1, 9)]])
@pytest.mark.parametrize("phase", PHASES)
def test_layouts(shapes, layout, phase, unconverted):
    """Operands of any strides, broadcast ones among them; their gradients are sums."""
    inputs = [drawn(shape, 5 + n) for n, shape in enumerate(shapes)]
    expected = run(pyops.multiply, phase, [wide(a) for a in inputs], {})
    unconverted()
    assert_rounded(run(pyops.multiply, phase, [LAYOUTS[layout](a) for a in inputs], {}), expected)


CALLS = [
    (pyops.relu, {}),
    (pyops.sigmoid, {}),
    (pyops.clip, {"min": -0.75, "max": 0.25}),
    (pyops.sum, {"axis": 0}),
    (pyops.sum, {"axis": -1}),
    (pyops.mean, {"axis": None}),
    (pyops.max, {"axis": 1}),
    (pyops.min, {"axis": 0}),
    (pyops.softmax, {"axis": 0}),
    (pyops.log_softmax, {"axis": -1}),
]
every_call = pytest.mark.parametrize(
    ("op", "options"), CALLS, ids=[f"{op.name} {[*o.values()]}" for op, o in CALLS]
)


@pytest.mark.parametrize("shape", [(700, 301), (3, 70_001), (200_003, 2)])
@every_call
def test_large(op, options, shape):
    """Arrays of many chunks, of elements that are not finite too, on any number of threads."""
    for special in False, True:
        x = drawn(shape, 3)
        if special:
            x.reshape(-1)[:: x.size // len(SPECIAL)][: len(SPECIAL)] = rounded(SPECIAL)
        with np.errstate(all="ignore"):
            expected = op(wide(x), **options)
            before = pyops.get_num_threads()
            try:
                for threads in 1, 2, 3:
                    pyops.set_num_threads(threads)
                    assert_rounded([op(x, **options)], [expected])
            finally:
                pyops.set_num_threads(before)


@pytest.mark.parametrize("phase", ["backward", "double_backward"])
@every_call
def test_large_derivatives(op, options, phase):
    x = drawn((700, 301), 4)
    assert_rounded(run(op, phase, [x], options), run(op, phase, [wide(x)], options))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1, 1)])
@pytest.mark.parametrize("name", ["exp", "sum", "mean"])
def test_few_elements(name, shape):
    op = OPERATORS[name]
    x = drawn(shape, 0)
    assert_rounded([op(x)], [np.asarray(op(wide(x)), np.float32)])
    assert_rounded(run(op, "backward", [x], {}), run(op, "backward", [wide(x)], {}))


@every_call
def test_out(op, options):
    x = drawn((60, 50), 6)
    expected = op(wide(x), **options)
    start = drawn(np.shape(expected), 7)
    out = start.copy()
    assert op(x, **options, out=out) is out
    assert_rounded([out], [expected])
    out = start.copy()
    assert op(x, **options, out=out, accumulate=True) is out
    assert_rounded([out], [wide(start) + expected])


@every_call
def test_kernels_accumulate(op, options):
    """Kernels themselves, as programs in C and Fortran call them, add before they round."""
    x = drawn((60, 50), 8)
    start = drawn(np.shape(op(wide(x), **options)), 9)
    expected = op(wide(x), **options, out=wide(start), accumulate=True)
    out = start.copy().view(np.int16)
    phase = op._phases["forward"].reading("bf16")
    bits = [x.view(np.int16)]
    phase._execute(phase._plan(bits, options, None), bits, options, {}, (out,), True)
    assert_rounded([out.view(bfloat16)], [expected])


def test_conditions():
    """A condition of booleans, and numbers, of which -0 is false."""
    x1, x2 = drawn((9, 40), 1), drawn((9, 40), 2)
    numbers = rounded(np.resize([0.0, -0.0, 1.0, -2.0, np.nan], x1.shape))
    chosen = [numbers != 0, numbers]
    for condition in chosen:
        as_single = wide(condition) if condition is numbers else condition
        expected = pyops.where(as_single, wide(x1), wide(x2))
        assert_rounded([pyops.where(condition, x1, x2)], [expected])
