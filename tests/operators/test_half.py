"""Half precision: arithmetic in float32, and results that are rounded once."""

import warnings

import numpy as np
import pytest

import pyops

from ..support.cases import EVERY, OPERATORS, PHASES, VARIANTS, representative
from ..support.small_cases import OPERATORS as ALL
from ..support.small_cases import arguments

try:
    from ml_dtypes import bfloat16
except ImportError:
    TYPES = [np.float16]
else:
    TYPES = [np.float16, bfloat16]
ROWS = {"num_src", "num_dst", "num_edges", "num_entries", "num_samples", "points"}


def rounded(array, kind):
    with np.errstate(over="ignore"):
        return None if array is None else np.asarray(array).astype(kind)


def is_parameter(op, name):
    """Return whether an array is a parameter, or a tangent of one."""
    inputs = op.signature.inputs
    found = inputs.get(name) or inputs.get(name[1:])
    return found is not None and found.shape[0].text not in ROWS


def assert_rounded(got, expected, kinds):
    """Assert the same bits as those of the float32 results after one rounding."""
    for one, other, kind in zip(got, expected, kinds, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == kind
            assert rounded(other, kind).tobytes() == one.tobytes()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_every_operator(case, phase, kind):
    """Features, or also parameters, in half precision give the rounded results of float32."""
    problem = case.problem().map(np.float32)
    for mixed in False, True:
        op = problem.op
        single = {n for n in problem.arrays if mixed and is_parameter(op, n)}
        half = problem.having(
            **{n: a if n in single else rounded(a, kind) for n, a in problem.arrays.items()}
        )
        wide = half.map(lambda a: a.astype(np.float32))
        kinds = [np.float32 if n in single else kind for n in [*op.signature.inputs, "gy"]]
        seeds = [kind] * (len(op.signature.results) - 1)
        kinds = {"backward": kinds[:-1], "double_backward": kinds + seeds}.get(phase, [kind])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = half.run(phase)
        assert_rounded(got, wide.run(phase), kinds)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", [n for n in ALL if n not in EVERY])
def test_elementwise(name, kind):
    """Elementwise operators and reductions; with float32 beside it the result is float32."""
    _, arrays, options = arguments(name, 0)
    half = [rounded(a, kind) for a in arrays]
    wide = [a.astype(np.float32) for a in half]
    op = ALL[name]
    y = op(*wide, **options)
    assert_rounded([op(*half, **options)], [y], [kind])
    gradients = op.backward(*half, rounded(y, kind), **options)
    expected = op.backward(*wide, rounded(y, kind).astype(np.float32), **options)
    assert_rounded(gradients, expected, [kind] * len(half))
    if len(half) > 1:
        assert_rounded([op(half[0], wide[1], **options)], [y], [np.float32])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_outputs(name, kind):
    """`out` takes arrays of the types of the results, and `accumulate` adds before the rounding."""
    problem = representative(name).problem().map(lambda a: rounded(a, kind))
    for phase in "backward", "double_backward":
        expected = problem.run(phase)
        start = [None if e is None else np.full_like(e, 0.25) for e in expected]
        wide = problem.map(lambda a: a.astype(np.float32)).run(phase)
        sums = [None if w is None else w + np.float32(0.25) for w in wide]
        for accumulate in False, True:
            out = [None if s is None else s.copy() for s in start]
            found = problem.run(phase, out=out, accumulate=accumulate)
            assert all(f is o for f, o in zip(found, out, strict=True))
            assert_rounded(found, sums if accumulate else wide, [kind] * len(out))


def test_saved():
    problem = representative("gat").problem().map(np.float16)
    y, saved = problem.op.forward(*problem.arguments("forward"), **problem.options)
    (expected,) = problem.run("forward")
    assert y.tobytes() == expected.tobytes()
    assert_rounded(problem.run("backward", saved=saved), problem.run("backward"), [np.float16] * 5)


@pytest.mark.parametrize("kind", TYPES)
def test_values_beyond(kind):
    """NaN stays NaN, sums exceed the largest number only in the result, and add up in float32."""
    graph = pyops.Graph(np.arange(3000), np.zeros(3000, int), 3000, 1)
    x = np.ones((3000, 1), kind)
    assert float(pyops.aggregate(graph, x)[0, 0]) == float(kind(3000))
    x[7] = np.nan
    assert np.isnan(pyops.aggregate(graph, x)).all()
    largest = np.full((3000, 1), np.finfo(np.float16).max if kind is np.float16 else 3e38, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isposinf(pyops.aggregate(graph, largest)).all()


def test_byte_orders():
    x = np.arange(6, dtype=">f2").reshape(2, 3)
    out = np.zeros((2, 3), ">f2")
    assert pyops.add(x, x.astype("<f2")).dtype == np.dtype("=f2")
    assert pyops.add(x, x, out=out) is out
    assert (out == 2 * x).all()


def test_traps():
    """Traps of NumPy for overflow and underflow do not stop a call."""
    with np.errstate(all="raise"):
        y = pyops.exp(np.array([-15.0, -100.0, 100.0], np.float16))
    assert (y[1:] == [0, np.inf]).all()


GRAPH = pyops.Graph([0, 1, 2], [1, 2, 0])
HALF = np.ones((3, 4), np.float16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pyops.gat(GRAPH, HALF, HALF.astype(float), HALF[0], heads=2),
            "gat: x_dst: expected float32 like x_src, got float64",
        ),
        (
            lambda: pyops.aggregate(GRAPH, HALF, out=np.ones((3, 4), np.float32)),
            "aggregate: out: expected an array of float16, got float32",
        ),
        (
            lambda: pyops.aggregate(GRAPH, HALF, out=[1.0]),
            "aggregate: out: expected an array of float16, got list",
        ),
        (
            lambda: pyops.aggregate(GRAPH, HALF, out=np.ma.ones((3, 4), np.float16)),
            "aggregate: out: expected a plain NumPy array, got numpy",
        ),
        (
            lambda: pyops.aggregate(GRAPH, HALF.astype(int)),
            "aggregate: x: expected float32 or float64, got int64",
        ),
        (
            lambda: pyops.edge_update(GRAPH, HALF, HALF.astype(TYPES[-1])),
            "edge_update: expected one type of half precision, got float16 or bfloat16",
        ),
    ],
)
def test_refusals(call, message):
    if "bfloat16" in message and len(TYPES) < 2:
        pytest.skip("needs ml_dtypes")
    with pytest.raises(TypeError, match=f"^{message}"):
        call()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.broadcast_to(HALF, (3, 4)), "expected a writeable array"),
        (
            np.lib.stride_tricks.as_strided(HALF.copy(), (3, 4), (4, 2)),
            "expected distinct elements",
        ),
        (HALF[:2].copy(), "expected shape"),
    ],
)
def test_refused_outputs(out, message):
    with pytest.raises(ValueError, match=f"^aggregate: out: {message}"):
        pyops.aggregate(GRAPH, HALF, out=out)
