"""Half precision: arithmetic in float32, and results that are rounded once.

The tests share the rounding of results and their comparison, so they are one file.
"""

import functools
import itertools
import warnings

import numpy as np
import pytest

import pyops
from pyops._call import half

from ..support.cases import EVERY, OPERATORS, PHASES, VARIANTS, representative
from ..support.small_cases import OPERATORS as ALL
from ..support.small_cases import arguments

try:
    from ml_dtypes import bfloat16
except ImportError:
    TYPES = [np.float16]
else:
    TYPES = [np.float16, bfloat16]
SLACK = 1e-5


ROWS = {"num_src", "num_dst", "num_edges", "num_entries", "num_samples", "points"}


def rounded(array, kind):
    with np.errstate(over="ignore"):
        return None if array is None else np.asarray(array).astype(kind)


def is_parameter(op, name):
    """Return whether an array is a parameter, or a tangent of one."""
    inputs = op.signature.inputs
    found = inputs.get(name) or inputs.get(name[1:])
    return found is not None and found.shape[0].text not in ROWS


def assert_rounded(got, expected, kinds, slack=0.0):
    """Assert the same bits as those of the float32 results after one rounding.

    With slack, relative to the largest element, these results may have other rounding errors:
    compilers fuse products and sums in different ways.
    """
    for one, other, kind in zip(got, expected, kinds, strict=True):
        assert (one is None) == (other is None)
        if one is None:
            continue
        assert one.dtype == kind
        if not slack or not np.isfinite(other).all() or not other.size:
            assert rounded(other, kind).tobytes() == one.tobytes()
            continue
        margin = slack * np.abs(other).max()
        assert (rounded(other - margin, kind) <= one).all()
        assert (one <= rounded(other + margin, kind)).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_every_operator(case, phase, kind):
    """Features, or also parameters, in half precision give the rounded results of float32."""
    problem = case.problem().map(np.float32)
    for mixed in False, True:
        op = problem.op
        single = {n for n in problem.arrays if mixed and is_parameter(op, n)}
        narrow = problem.having(
            **{n: a if n in single else rounded(a, kind) for n, a in problem.arrays.items()}
        )
        wide = narrow.map(lambda a: a.astype(np.float32))
        kinds = [np.float32 if n in single else kind for n in [*op.signature.inputs, "gy"]]
        seeds = [kind] * (len(op.signature.results) - 1)
        kinds = {"backward": kinds[:-1], "double_backward": kinds + seeds}.get(phase, [kind])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = narrow.run(phase)
        assert_rounded(got, wide.run(phase), kinds, SLACK if op.signature.half else 0)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", [n for n in ALL if n not in EVERY])
def test_elementwise(name, kind):
    """Elementwise operators and reductions; with float32 beside it the result is float32."""
    _, arrays, options = arguments(name, 0)
    narrow = [rounded(a, kind) for a in arrays]
    wide = [a.astype(np.float32) for a in narrow]
    op = ALL[name]
    y = op(*wide, **options)
    assert_rounded([op(*narrow, **options)], [y], [kind])
    gradients = op.backward(*narrow, rounded(y, kind), **options)
    expected = op.backward(*wide, rounded(y, kind).astype(np.float32), **options)
    assert_rounded(gradients, expected, [kind] * len(narrow))
    if len(narrow) > 1:
        assert_rounded([op(narrow[0], *wide[1:], **options)], [y], [np.float32])


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


@pytest.mark.parametrize("kind", TYPES)
def test_conversions(kind):
    """All numbers of half precision widen, and drawn ones of float32 round, as in NumPy."""
    bits = np.arange(2**16, dtype=np.uint16).view(kind)
    assert_same_numbers(half.widened(bits), bits.astype(np.float32))
    drawn = np.random.default_rng(0).integers(0, 2**32, 2**20, np.uint32)
    ties = (np.arange(2**16, dtype=np.uint32) << 16)[:, None] + [0, 0x1000, 0x7FFF, 0x8000, 0x8001]
    wide = np.concatenate([drawn, ties.astype(np.uint32).ravel()]).view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = rounded(wide, kind)
    assert_same_numbers(half.rounded(wide, np.dtype(kind)), expected)


def assert_same_numbers(got, expected):
    """Assert the same bits, but for those of NaN."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected.astype(np.float64))
        assert np.isnan(got[nan].astype(np.float64)).all()
    assert got.dtype == expected.dtype
    assert got[~nan].tobytes() == expected[~nan].tobytes()


READ = sorted(name for name, op in OPERATORS.items() if op.signature.half)


def rows_problem(name, width, kind):
    """Return a problem with rows of this width, a node of high degree, and float32 beside it."""
    rng = np.random.default_rng(width)
    src, dst = rng.integers(0, [[300], [40]], (2, 3000))
    dst[:1500] = 7
    graph = pyops.Graph(src, dst, 300, 40)
    heads = 2 if name == "hetero_basis" else 3
    draw = rng.standard_normal
    inputs = {
        "aggregate": {"x": draw((300, width)), "edge": draw((3000, 3)), "own": draw((40, 2))},
        "degree_normalised": {"x": draw((300, width))},
        "hetero_basis": {"x": draw((300, width)), "weight": draw((3000, heads))},
        "gat": {
            "x_src": draw((300, heads * width)),
            "x_dst": draw((40, heads * width)),
            "attention": draw(heads * (2 * width + 2)),
            "edge_features": draw((3000, heads * 2)),
        },
        "gat_v2": {
            "x_src": draw((300, heads * width)),
            "x_dst": draw((40, heads * width)),
            "attention": draw(heads * width) / width,
            "edge_features": draw((3000, heads * width)),
        },
        "edge_update": {
            "x_src": draw((300, width)),
            "x_dst": draw((40, width)),
            "edge": draw((3000, width)),
        },
        "edge_to_edge": {"h": draw((3000, width))},
        "gno_aggregate": {"features": draw((300, 3)), "kappa": draw((3000, 3 * width))},
        "dimenet_aggregate": {
            "vectors": draw((3000, 3)),
            "radial": draw((3000, 4 * 3)),
            "embedding": draw((3000, width)),
            "weights": draw((4 * 3 + width, 4)),
        },
        "gno_conv": {
            "features": draw((300, width)),
            "coords": draw((3000, 2)),
            "params": draw(9 + 16 * width),
        },
        "kernel_conv": {
            "features": draw((300, width)),
            "hidden_layer": draw((3000, 5)),
            "weight": draw((width, 5)),
            "bias": draw(width),
            "edge_weight": draw(3000),
        },
        "segment_matmul": {
            "x": draw((300, width)),
            "weight": draw((40, width, 5)),
            "bias": draw((40, 5)),
        },
        "segment_softmax": {"logits": draw((3000, width))},
        "transformer_conv": {
            "query": draw((40, heads * width)),
            "key": draw((300, heads * width)),
            "value": draw((300, heads * width)),
            "edge_features": draw((3000, heads * width)),
        },
    }[name]
    parameters = {n for n in inputs if n not in OPERATORS[name].signature.half}
    return graph, {n: a.astype(np.float32 if n in parameters else kind) for n, a in inputs.items()}


@pytest.mark.parametrize("kind", TYPES[1:])
@pytest.mark.parametrize("width", [1, 5, 8, 17, 64, 65, 100, 256, 700])
@pytest.mark.parametrize("name", READ)
def test_rows_are_read_as_they_are(name, width, kind, monkeypatch):
    """Kernels read the rows themselves, of any width; the results are those of float32, rounded."""
    op = OPERATORS[name]
    graph, arrays = rows_problem(name, width, kind)
    options = [{}]
    if "heads" in op.signature.options:
        options = [{"heads": 3, "concat": c} for c in (True, False)]
    if name == "aggregate":
        options = [{"reduce": r} for r in op.signature.options["reduce"].choices]
    if name in ("edge_update", "kernel_conv"):
        choices = {n: o.choices for n, o in op.signature.options.items()}
        options = [dict(zip(choices, c, strict=True)) for c in itertools.product(*choices.values())]
    if name == "gno_conv":
        options = [{"hidden": 3}]
    if name == "dimenet_aggregate":
        options = [{"num_spherical": 4, "exclude": e} for e in ("node", "none")]
    kinds = [a.dtype for a in arrays.values()]
    # Dot products of pairs of elements add up in another order.
    slack = 5 * SLACK if "heads" in op.signature.options else SLACK
    convert = half.widened
    for option in options:
        y = op(graph, **{n: convert(a) for n, a in arrays.items()}, **option)
        gy, h = rounded(y, kind), {"h" + n: a for n, a in arrays.items()}
        calls = {
            "forward": [*arrays],
            "backward": [*arrays, "gy"],
            "double_backward": [*arrays, "gy", *h],
        }
        every = {**arrays, "gy": gy, **h}
        for phase, names in calls.items():
            run = op if phase == "forward" else getattr(op, phase)
            expected = run(graph, **{n: convert(every[n]) for n in names}, **option)
            monkeypatch.setattr(half, "widened", only_parameters)
            got = run(graph, **{n: every[n] for n in names}, **option)
            monkeypatch.setattr(half, "widened", convert)
            if phase == "forward":
                got, expected, types = [got], [expected], [kind]
            else:
                got, expected = ([a for a in r if a is not None] for r in (got, expected))
                types = [*kinds, *[np.dtype(kind)] * (phase != "backward")]
            assert_rounded(got, expected, types, slack)


@pytest.mark.parametrize("kind", TYPES[1:])
@pytest.mark.parametrize("name", ["aggregate", "gat", "hetero_basis", "transformer_conv"])
def test_rows_that_begin_within_a_pair(name, kind):
    """Wide rows are read in pairs of elements, unless memory begins within one."""
    graph, arrays = rows_problem(name, 64, kind)
    moved = {}
    for label, array in arrays.items():
        place = np.empty(array.size + 1, array.dtype)[1:].reshape(array.shape)
        place[...] = array
        assert array.dtype != kind or (array.ctypes.data % 4, place.ctypes.data % 4) == (0, 2)
        moved[label] = place
    options = {"heads": 3} if "heads" in OPERATORS[name].signature.options else {}
    op = functools.partial(OPERATORS[name], graph, **options)
    y = op(**arrays)
    assert op(**moved).tobytes() == y.tobytes()
    vjp = functools.partial(OPERATORS[name].backward, graph, gy=y, **options)
    for pair in zip(vjp(**moved), vjp(**arrays), strict=True):
        got, expected = (None if a is None else a.astype(np.float32) for a in pair)
        if expected is not None:
            margin = 5 * SLACK * np.abs(expected).max()
            np.testing.assert_allclose(got, expected, 2**-7, margin)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ["gat", "gat_v2"])
def test_parameters_alone(name, kind):
    """Parameters in half precision beside features in float32 give float32."""
    graph, arrays = rows_problem(name, 8, kind)
    wide = {n: a.astype(np.float32) for n, a in arrays.items()}
    op = functools.partial(OPERATORS[name], graph, heads=3)
    attention = wide["attention"].astype(kind)
    found = op(**{**wide, "attention": attention})
    expected = op(**{**wide, "attention": attention.astype(np.float32)})
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


def only_parameters(array):
    assert not half.is_half(array)
    return array


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_several_types(kind):
    """Rows in float32 beside others, or of any strides, give the same results."""
    graph, arrays = rows_problem("aggregate", 8, kind)
    wide = {n: a.astype(np.float32) for n, a in arrays.items()}
    expected = rounded(pyops.aggregate(graph, **wide), kind)
    for changed in (
        {"edge": wide["edge"]},
        {"x": np.asfortranarray(arrays["x"])},
        {"x": arrays["x"][::-1][::-1]},
        {"x": arrays["x"].astype(np.dtype(kind).newbyteorder())} if kind is np.float16 else {},
    ):
        found = pyops.aggregate(graph, **{**arrays, **changed})
        assert_rounded([found], [expected.astype(np.float32)], [kind], SLACK)
    with pytest.raises(TypeError, match="weight: expected float32 like x, got float64"):
        pyops.aggregate(graph, **arrays, weight=np.ones(3000))
    with pytest.raises(TypeError, match="expected a plain NumPy array"):
        pyops.aggregate(graph, np.ma.array(arrays["x"]))
    with pytest.raises(TypeError, match=r"graph: expected pyops\.Graph, got ndarray"):
        pyops.aggregate(arrays["x"])
    bits = arrays["x"].view(np.int16)
    with pytest.raises(TypeError, match="aggregate: x: expected float32 or float64, got int16"):
        pyops.aggregate(graph, bits)


def test_saved():
    kind = TYPES[-1]
    problem = representative("gat").problem().map(kind)
    y, saved = problem.op.forward(*problem.arguments("forward"), **problem.options)
    (expected,) = problem.run("forward")
    assert y.tobytes() == expected.tobytes()
    assert_rounded(problem.run("backward", saved=saved), problem.run("backward"), [kind] * 5)


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
