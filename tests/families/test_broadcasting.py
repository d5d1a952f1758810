"""Broadcasting arrays: layouts, outputs, threads, sums of many terms, and refusals.

The tests run over the same pairs of shapes, so they are one file.
"""

import itertools

import numpy as np
import pytest

import pyops
from pyops._call.broadcast import make_layout, packed, spread

from ..operators.test_bounds import fenced
from ..support.broadcasts import BINARY, FUNCTIONS, OPERATORS, PAIRS, UNARY, Problem, problem
from ..support.cases import PHASES
from ..support.compare import assert_close, assert_same
from ..support.layouts import LAYOUTS
from ..support.programs import run

SOME = "multiply", "power", "exp", "maximum"
every_phase = pytest.mark.parametrize("phase", PHASES)
every_pair = pytest.mark.parametrize("pair", PAIRS)
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@both_types
@pytest.mark.parametrize("layout", LAYOUTS)
@every_phase
@pytest.mark.parametrize("name", SOME)
def test_layouts(name, phase, layout, dtype):
    for pair in "same", "bias", "longer row", "many narrow rows", "scalar":
        p = problem(name, pair, dtype)
        other = p.map(lambda a: LAYOUTS[layout](a) if a.ndim else a)
        assert_close(other.run(phase), p.run(phase), 8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("columns", [17, 48, 100, 186, 200])
@pytest.mark.parametrize(("batch", "rows"), [(4, 3), (8, 16), (4, 32), (4, 13)])
def test_operand_of_an_inner_axis(batch, rows, columns, rng):
    """Chunks that cross to its next row, and later ones that begin where such a chunk did."""
    x, g = rng.random((2, batch, 2, rows, columns), np.float32)
    scale = rng.random((1, 2, 1, columns), np.float32)
    assert_same([pyops.multiply(x, scale)], [x * scale])
    gx, gscale = pyops.multiply.backward(x, scale, g)
    assert_same([gx], [g * scale])
    exact = (g.astype(float) * x).sum((0, 2), keepdims=True)
    assert_close([gscale], [exact], 4 * np.finfo("f").eps)


@every_phase
@pytest.mark.parametrize("name", SOME)
def test_inputs_that_repeat_elements(name, phase):
    p = Problem(name, [(1, 40, 1)] * len(problem(name).inputs))
    wide = p.map(lambda a: np.broadcast_to(a, (30, 40, 50)))
    assert_close(wide.run(phase), wide.map(np.array).run(phase), 1e-14)


@every_phase
@every_pair
@pytest.mark.parametrize("name", SOME)
def test_out_and_accumulate(name, pair, phase):
    p = problem(name, pair)
    expected = p.run(phase)

    def given(fill):
        out = [np.full_like(a, fill) for a in expected]
        return out, out[0] if phase in ("forward", "jvp") else out

    out, keyword = given(np.nan)
    results = p.run(phase, out=keyword)
    assert all(a is b for a, b in zip(results, out, strict=True))
    assert_same(out, expected)
    out, keyword = given(2)
    p.run(phase, out=keyword, accumulate=True)
    assert_close(out, [a + 2 for a in expected], 1e-14)


@every_phase
def test_outputs_of_any_layout(phase):
    p = problem("multiply", "longer row")
    expected = p.run(phase)
    for layout in "Fortran", "strided", "reversed", "unaligned":
        out = [LAYOUTS[layout](np.zeros_like(a)) for a in expected]
        p.run(phase, out=out[0] if phase in ("forward", "jvp") else out)
        assert_same([np.array(a) for a in out], expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_in_the_place_of_inputs(name):
    p = problem(name, "longer row" if name in UNARY else "same")
    (y,) = p.run("forward")
    gradients = p.run("backward")
    copies = p.map(np.copy)
    assert_same([copies.op(*copies.inputs, out=copies.inputs[0])], [y])
    copies = p.map(np.copy)
    assert_same(copies.run("backward", out=copies.inputs), gradients)
    memory = np.zeros(p.inputs[0].size + 3)
    x = memory[3:].reshape(p.inputs[0].shape)
    x[...] = p.inputs[0]
    p.inputs[0] = x
    assert_same(p.run("forward", out=memory[:-3].reshape(x.shape)), [y])


@pytest.mark.parametrize("name", BINARY)
def test_one_array_twice(name):
    x = abs(problem(name).inputs[0]) + 0.5
    for phase, more in ("backward", [x]), ("double_backward", [x, x, x]), ("jvp", [x, x]):
        call = getattr(FUNCTIONS[name], phase)
        got, expected = call(x, x, *more), call(x, x.copy(), *map(np.copy, more))
        assert_same([got], [expected]) if phase == "jvp" else assert_same(got, expected)


@every_pair
@pytest.mark.parametrize("name", SOME)
def test_wanted(name, pair):
    p = problem(name, pair)
    for phase in "backward", "double_backward":
        names = [*p.op.signature.inputs] + ["gy"] * (phase == "double_backward")
        full = dict(zip(names, p.run(phase), strict=True))
        for number in range(len(names)):
            for wanted in itertools.combinations(names, number):
                expected = [full[n] if n in wanted else None for n in names]
                assert_close(p.run(phase, wanted=wanted), expected, 1e-14)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_absent_cotangents_are_zero(name):
    p = problem(name, "bias")
    inputs, zeros = p.inputs, [np.zeros_like(a) for a in p.inputs]
    for kept in range(len(inputs)):
        some = [h if i == kept else None for i, h in enumerate(p.h)]
        full = [h if i == kept else z for i, (h, z) in enumerate(zip(p.h, zeros, strict=True))]
        assert_close([p.op.jvp(*inputs, *some)], [p.op.jvp(*inputs, *full)], 1e-14)
        got = p.op.double_backward(*inputs, p.gy, *some)
        assert_close(got, p.op.double_backward(*inputs, p.gy, *full), 1e-14)
    nothing = [None] * len(inputs)
    for result in p.op.double_backward(*inputs, p.gy, *nothing):
        assert not result.any()
    for result in p.op.backward(*inputs, None):
        assert not result.any()


def test_what_meets_absent_cotangents_does_not_matter():
    x1, x2 = np.array([np.nan, 2.0]), np.array([3.0, 4.0])
    h = np.ones(2)
    assert pyops.multiply.jvp(x1, x2, h, None).tolist() == [3, 4]
    dx1, dx2, dgy = pyops.multiply.double_backward(x1, x2, h, h, None)
    assert (dx1 == 0).all()
    assert dx2.tolist() == [1, 1]
    assert dgy.tolist() == [3, 4]


@both_types
@pytest.mark.parametrize("pair", [name for name in PAIRS if name.startswith("in parts")])
@every_phase
def test_threads(pair, phase, dtype):
    for name in "multiply", "sigmoid":
        p = problem(name, pair, dtype)
        pyops.set_num_threads(1)
        alone = p.run(phase)
        for threads in 2, 3, 7:
            pyops.set_num_threads(threads)
            assert_same(p.run(phase), alone)


@pytest.mark.parametrize("shape", [(1,), (2**25, 1), (1, 2**25), (2**13, 2**12)])
def test_float32_ones_do_not_saturate(shape):
    ones = np.broadcast_to(np.ones((), np.float32), shape)
    x = np.ones((1,) * len(shape), np.float32)
    big = ones if np.prod(shape) > 1 else np.broadcast_to(np.float32(1), (2**25,))
    _, gx = pyops.multiply.backward(big, x, big, wanted=["x2"])
    assert gx.item() == 2**25
    assert pyops.sum(big).item() == 2**25
    assert pyops.mean(big).item() == 1


@pytest.mark.parametrize("end", [True, False], ids=["end", "start"])
@both_types
@every_pair
def test_fences(pair, dtype, end):
    """No kernel reads or writes out of bounds."""
    p = problem("multiply", pair, dtype)
    if any(a.size == 0 for a in p.inputs):
        return
    behind = p.map(lambda a: fenced(a, end))
    for phase in PHASES:
        expected = p.run(phase)
        out = [fenced(np.zeros_like(a), end) for a in expected]
        assert_same(behind.run(phase, out=out[0] if phase in ("forward", "jvp") else out), expected)


def test_more_elements_than_int32_counts():
    """All arrays but the scalar are one element with stride 0."""
    x = np.broadcast_to(np.float32(2), (2**16, 2**15 + 1))
    _, gx = pyops.multiply.backward(x, np.ones((1, 1), np.float32), x, wanted=["x2"])
    assert gx.item() == 4 * 2**16 * (2**15 + 1)
    assert pyops.max(x).item() == 2


@pytest.mark.bare
def test_memory_error():
    said = run("""
        x, c = np.broadcast_to(np.float32(1), (2**12, 2**12, 4)), np.ones((2**12, 4), np.float32)
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 2**18, -1))
        try:
            pyops.multiply.backward(x, c, x, wanted=["x2"], out=(None, c))
        except MemoryError as error:
            print("MemoryError")
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        print(pyops.multiply(c, c).sum())
    """)
    assert said.split()[-1] == str(float(2**14))


def axes_of(*shapes):
    """Return extents and strides of the merged axes."""
    space = np.broadcast_shapes(*shapes)
    strides = tuple(spread(space, shape, packed(shape)) for shape in (*shapes, space))
    return make_layout(space, strides, 1).table.T.tolist()


def test_axes_that_broadcast_alike_are_merged():
    assert axes_of((3, 4, 5), (3, 4, 5)) == [[60, 1, 1, 1]]
    assert axes_of((3, 4, 5), ()) == [[60, 1, 0, 1]]
    assert axes_of((3, 4, 5), (4, 5)) == [[3, 20, 0, 20], [20, 1, 1, 1]]
    assert axes_of((3, 4, 5), (3, 4, 1)) == [[12, 5, 1, 5], [5, 1, 0, 1]]
    assert axes_of((8, 3, 4, 5), (3, 1, 1)) == [[8, 60, 0, 60], [3, 20, 1, 20], [20, 1, 0, 1]]
    assert axes_of((1, 1), ()) == [[1, 1, 1, 1]]


@every_phase
def test_shapes_that_do_not_belong_together(phase):
    wrong = [(2, 3), (4,)], [(2, 3), (3, 2)], [(5,), (6,)]
    for shapes in wrong:
        inputs = [np.ones(s) for s in shapes]
        more = {"backward": 1, "double_backward": 3, "jvp": 2}.get(phase, 0)
        call = pyops.add if phase == "forward" else getattr(pyops.add, phase)
        caller = "add" if phase == "forward" else f"add.{phase}"
        message = rf"^{caller}: x2: expected a shape that broadcasts with .* of x1, got "
        with pytest.raises(ValueError, match=message):
            call(*inputs, *[np.ones(3)] * more)


@pytest.mark.parametrize("name", ["add", "exp", "sum", "max"])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ([1.0], TypeError, "expected a NumPy array, got list"),
        (1.0, TypeError, "expected a NumPy array, got float"),
        (None, TypeError, "expected a NumPy array, got None"),
        (np.ones(3, int), TypeError, "expected float32 or float64, got int64"),
        (np.ones(3, complex), TypeError, "expected float32 or float64, got complex128"),
        (np.ones(3, object), TypeError, "expected float32 or float64, got object"),
        (np.ma.ones(3), TypeError, "expected a plain NumPy array, got numpy"),
    ],
)
def test_what_is_no_array(name, wrong, error, message):
    op = OPERATORS[name]
    others = [np.ones(3)] * (len(op.signature.inputs) - 1)
    label = next(iter(op.signature.inputs))
    for phase in PHASES:
        call = op if phase == "forward" else getattr(op, phase)
        caller = name if phase == "forward" else f"{name}.{phase}"
        more = {"backward": 1, "double_backward": 1, "jvp": 0}.get(phase, 0)
        more += len(op.signature.inputs) if phase in ("double_backward", "jvp") else 0
        with pytest.raises(error, match=f"^{caller}: {label}: {message}"):
            call(wrong, *others, *[None] * more)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: pyops.add(x), TypeError, r"add: expected arguments \(x1, x2\), got 1 of them"),
        (lambda x: pyops.exp(x, x), TypeError, r"exp: expected arguments \(x\), got 2 of them"),
        (lambda x: pyops.exp(x, axis=1), TypeError, "exp: unexpected option 'axis'; options are: "),
        (lambda x: pyops.add(x, x.astype("f4")), TypeError, "add: x2: expected float64 like x1"),
        (lambda x: pyops.add(x, x, out=x[:2]), ValueError, r"add: out: expected shape \(3,\)"),
        (lambda x: pyops.add(x, x, out=x[None]), ValueError, r"add: out: expected shape \(3,\)"),
        (
            lambda x: pyops.add.backward(x, x[:1], x, out=(None, x)),
            ValueError,
            r"add.backward: out: gx2: expected shape \(1,\), got \(3,\)",
        ),
        (
            lambda x: pyops.add.backward(x, x, x, out=(y := np.zeros(3), y)),
            ValueError,
            "add.backward: out: gx2: expected memory of its own",
        ),
        (
            lambda x: pyops.add.backward(x, x, x[:1]),
            ValueError,
            r"add.backward: gy: expected shape",
        ),
        (lambda x: pyops.add.jvp(x, x, x[:1], x), ValueError, r"add.jvp: tx1: expected shape"),
        (
            lambda x: pyops.add(x, x, accumulate=True),
            ValueError,
            "add: accumulate: expected arrays",
        ),
        (
            lambda x: pyops.add.backward(x, x, x, wanted=["x"]),
            ValueError,
            "add.backward: wanted: expected names among x1, x2, got 'x'",
        ),
        (
            lambda x: pyops.add.backward(x, x, x, saved=1),
            ValueError,
            "add.backward: saved: expected what add.forward returned, got int",
        ),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=f"^{message}"):
        call(np.ones(3))


@pytest.mark.parametrize("number", [np.float32(2), np.float64(2)])
def test_numbers_of_numpy_are_arrays_without_axes(number):
    y = pyops.multiply(number, number)
    assert isinstance(y, np.ndarray)
    assert y.shape == ()
    assert y.dtype == number.dtype
    assert pyops.multiply.backward(number, number, number)[0] == 4


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help(name):
    text = OPERATORS[name].__doc__
    assert f"{name}(" in text
    for part in ".. math:: y = ", "Parameters", "Returns", ".backward(", ".double_backward(":
        assert part in text
