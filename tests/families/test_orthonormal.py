"""Orthonormal bases: accuracy, dependent columns, packed blocks, gradients per sample.

The tests share bases and measures of their accuracy, so they are one file.
"""

import itertools

import numpy as np
import pytest

import pyops
from pyops.blocks import pack_basis, unpack_basis

from ..reference import ono_encode, orthonormalize, reference
from ..reference.orthonormalize import gram_schmidt
from ..support.cases import PHASES, Case, representative
from ..support.compare import assert_close, assert_same
from ..support.layouts import LAYOUTS

LIMIT = 30  # as in LAPACK's own tests
CONDITIONS = {np.float32: [1, 30, 300, 1e3, 1e5], np.float64: [1, 30, 1e3, 1e8, 1e12]}
SHAPES = (1, 1), (5, 3), (16, 16), (64, 64), (200, 17), (1024, 64), (1500, 130)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
ENCODERS = "ono_encode", "ono_decode"
BASES = "orthonormalize", *ENCODERS
LAPLACE = "lno_encode", "lno_decode"
# Points, modes, samples: blocks and parts of points, whole and not, of one sample or several.
MANY = (63, 17, 70), (64, 1, 3), (129, 65, 33), (1025, 130, 1), (2100, 64, 3), (1100, 16, 70)
# Sums over points in parts, of one block of modes or several; work arrays of huge pages.
LONG = (4500, 5, 3), (9000, 40, 2), (40_000, 20, 1)


def conditioned(points, modes, condition, seed=0):
    """Return a random basis with singular values from 1 down to 1 / condition."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((points, modes)))
    right, _ = np.linalg.qr(rng.standard_normal((modes, modes)))
    return left * np.geomspace(1, 1 / condition, modes) @ right.T


def norm(matrix):
    return np.abs(matrix).sum(0).max()


def ratios(basis, q):
    """Return |I - Q^T Q| / (n eps) and |B - Q R| / (n eps |B|), in extended precision."""
    unit = len(basis) * np.finfo(basis.dtype).eps
    basis, q = basis.astype(np.longdouble), q.astype(np.longdouble)
    r = np.triu(q.T @ basis)
    assert (np.diagonal(r) > 0).all()
    return norm(np.eye(len(r)) - q.T @ q) / unit, norm(basis - q @ r) / (unit * norm(basis))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@both_dtypes
def test_ratios(dtype, shape):
    for seed, condition in enumerate(CONDITIONS[dtype]):
        basis = conditioned(*shape, condition, seed).astype(dtype)
        assert max(ratios(basis, pyops.orthonormalize(basis))) < LIMIT, condition


@pytest.mark.parametrize("points", [4095, 4097, 9001])
@both_dtypes
def test_threads_share_the_rows_of_a_dependent_basis(dtype, points, rng):
    basis = conditioned(points, 40, 1e5).astype(dtype)
    dependent = [7, 22, 39]
    basis[:, dependent] = basis[:, [1, 20, 0]]
    basis[:, 22] += basis[:, 3]
    found = []
    for threads in 1, 2, 7:
        pyops.set_num_threads(threads)
        found.append(pyops.orthonormalize(basis))
    assert all(np.array_equal(found[0], other) for other in found)
    assert np.flatnonzero(~found[0].any(0)).tolist() == dependent
    others = [np.delete(matrix, dependent, axis=1) for matrix in (basis, found[0])]
    assert max(ratios(*others)) < LIMIT


@both_dtypes
def test_ratios_of_columns_of_all_sizes(dtype, rng):
    """Squares of the elements overflow or underflow."""
    far = np.finfo(dtype).maxexp - 3
    sizes = np.ldexp(1.0, np.linspace(-far, far, 9).astype(int))
    basis = (rng.standard_normal((40, 9)) * sizes).astype(dtype)
    q = pyops.orthonormalize(basis)
    even = pyops.orthonormalize((basis / sizes).astype(dtype))
    assert_close([q], [even], 100 * np.finfo(dtype).eps)
    assert max(ratios((basis / sizes).astype(dtype), q)) < LIMIT


@both_dtypes
def test_hilbert_matrix(dtype):
    """Each column is, to rounding, nearly a linear combination of others."""
    i = np.arange(12)
    basis = (1 / (1 + i[:, None] + i[:6])).astype(dtype)
    assert max(ratios(basis, pyops.orthonormalize(basis))) < LIMIT


def test_known_numbers():
    basis = np.array([[3.0, 1.0], [4.0, 2.0]])
    q = np.array([[0.6, -0.8], [0.8, 0.6]])
    np.testing.assert_allclose(pyops.orthonormalize(basis), q, rtol=1e-15)
    np.testing.assert_allclose(pyops.ono_encode(np.array([[1.0, 0.0]]), basis), [[0.6, -0.8]])
    np.testing.assert_allclose(pyops.ono_decode(np.array([[1.0, 1.0]]), basis), [[-0.2, 1.4]])
    e = np.exp([0, -0.5, -1])
    np.testing.assert_allclose(pyops.lno_encode(np.eye(3), np.ones(1))[:, 0], e)
    np.testing.assert_allclose(pyops.lno_decode(np.ones((1, 1)), np.ones(1), points=3)[0], e)
    assert pyops.lno_decode(np.ones((1, 1)), np.ones(1), points=1).tolist() == [[1]]
    scaled = pyops.elem_scale(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 0.5]))
    assert scaled.tolist() == [[10, 1], [30, 2]]


@both_dtypes
def test_complex_poles(dtype, rng):
    """Modes with frequencies of both signs are pairs of complex poles, also after many turns."""
    t = np.linspace(0, 1, 50)
    decay, turns = rng.uniform(-1, 4, 6).astype(dtype), rng.uniform(0, 2000, 6).astype(dtype)
    powers = np.exp((-decay + 1j * turns.astype("d")) * t[:, None])
    poles, frequencies = np.concatenate([decay, decay]), np.concatenate([turns, -turns])
    u = rng.standard_normal((9, 50)).astype(dtype)
    first, second = np.split(pyops.lno_encode(u, poles, frequencies), 2, axis=1)
    close = {"rtol": 0, "atol": 300 * np.finfo(dtype).eps + 1e-10}  # angles are doubles
    np.testing.assert_allclose((first + second) / 2 + 0.5j * (first - second), u @ powers, **close)
    residues = rng.standard_normal((9, 6, 2)).astype(dtype) @ np.array([1, 1j])
    x = np.concatenate([residues.real - residues.imag, residues.real + residues.imag], axis=1) / 2
    y = pyops.lno_decode(x.astype(dtype), poles, frequencies, points=50)
    np.testing.assert_allclose(y, (residues @ powers.T).real, **close)


@pytest.mark.parametrize(
    ("name", "absent", "sizes"),
    [
        *itertools.product(LAPLACE, [(), ("frequencies",)], MANY),
        *itertools.product(BASES, [()], LONG),
    ],
    ids=str,
)
def test_many_points_modes_and_samples(name, absent, sizes):
    points, modes, samples = sizes
    graph = pyops.Graph(*np.zeros((2, samples), int), 1)
    exact = Case(name, (), absent).problem(graph, points=points, modes=modes)
    for dtype in np.float32, np.float64:
        problem = exact.map(dtype)
        for phase in PHASES:
            expected = reference(problem.map(np.float64), phase)
            results = []
            for threads in 1, 2, 7:
                pyops.set_num_threads(threads)
                results.append(problem.run(phase))
            assert_close(results[0], expected, 100 * np.finfo(dtype).eps)
            for other in results[1:]:
                assert_same(other, results[0])
            out = tuple(None if y is None else y.copy() for y in results[0])
            one = phase in ("forward", "jvp")
            problem.run(phase, out=out[0] if one else out, accumulate=True)
            twice = [None if y is None else 2 * y for y in expected]
            assert_close(out, twice, 100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("points", [1, 20, 100, 1100])
def test_overflow_is_infinite(points):
    """Points that fill a block are not among the sums, and exponentials of them may overflow."""
    poles = np.array([-200, 1], "f")
    t = np.linspace(0, 1, points)
    y = pyops.lno_encode(np.ones((3, points), "f"), poles)
    expected = np.exp(-t[:, None] * poles).sum(0)
    expected[expected > np.finfo("f").max] = np.inf
    np.testing.assert_allclose(y, np.tile(expected, (3, 1)), rtol=1e-5)
    y = pyops.lno_decode(np.ones((3, 2), "f"), poles, points=points)
    expected = np.exp(-t[:, None] * poles).sum(1)
    expected[expected > np.finfo("f").max] = np.inf
    np.testing.assert_allclose(y, np.tile(expected, (3, 1)), rtol=1e-4)


def test_infinite_frequencies():
    """At t = 0 nothing depends on them."""
    u, one = np.array([[3.0, 0.0]]), np.ones(1)
    assert np.isnan(pyops.lno_encode(u, one, np.array([np.inf]))).all()
    assert pyops.lno_encode(u[:, :1], one, np.array([np.inf])).tolist() == [[3]]
    gradients = pyops.lno_encode.backward(u[:, :1], one, one, np.ones((1, 1)))
    assert [g.tolist() for g in gradients] == [[[1]], [0], [0]]


DEPENDENT = [0, 2, 3, 6, 7]


def with_dependent_columns(problem, rng, dtype):
    """Return a basis whose columns 0 and 3 are zero and 2, 6 and 7 depend on earlier ones."""
    basis = rng.standard_normal(problem.arrays["basis"].shape)
    basis[:, [0, 3]] = 0
    basis[:, 2] = -2.5 * basis[:, 1]
    basis[:, 6:] = basis[:, :6] @ rng.standard_normal((6, 2))
    return problem.having(basis=basis.astype(dtype))


@pytest.mark.parametrize("points", [8, 90])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", BASES)
@both_dtypes
def test_dependent_columns(name, phase, points, dtype, rng):
    """Dependent columns give zero columns and gradients, and do not affect other columns."""
    problem = representative(name).problem(points=points, modes=8).map(dtype)
    problem = with_dependent_columns(problem, rng, dtype)

    def without(array):
        """Return an array without the elements that belong to the columns."""
        for axis, length in enumerate(array.shape):
            if length == 8 and (axis, points) != (0, 8):
                array = np.delete(array, DEPENDENT, axis)
        return array

    if points == 8:
        return check_zeros(problem, phase)
    got, expected = problem.run(phase), problem.map(without).run(phase)
    unit = np.finfo(dtype).eps
    assert_close([without(a) for a in got], expected, 2000 * unit)
    check_zeros(problem, phase)


def check_zeros(problem, phase):
    inputs = dict(zip(problem.op.signature.inputs, problem.run(phase), strict=False))
    if "backward" in phase:
        assert not inputs["basis"][:, DEPENDENT].any()
        assert inputs["basis"][:, 1].any()
    elif problem.op.name != "ono_decode":
        (y,) = problem.run(phase)
        assert not y[:, DEPENDENT].any()
        assert y[:, 1].any()


@pytest.mark.parametrize("name", BASES)
def test_dependent_columns_against_reference(name, rng):
    problem = representative(name).problem(points=30, modes=8)
    problem = with_dependent_columns(problem, rng, float)
    for phase in "forward", "backward":
        assert_close(problem.run(phase), reference(problem, phase), 1e-12)


@both_dtypes
def test_what_rounding_leaves_of_a_dependent_column(dtype, rng):
    for points in 3, 10, 100, 3000:
        modes = min(points, 24)
        basis = rng.standard_normal((points, modes)).astype(dtype)
        for j in range(2, modes, 3):
            basis[:, j] = basis[:, :j] @ rng.standard_normal(j).astype(dtype)
        dependent = ~pyops.orthonormalize(basis).any(0)
        assert np.flatnonzero(dependent).tolist() == [*range(2, modes, 3)]


@both_dtypes
def test_no_valid_column_is_lost(dtype, rng):
    """No independent column is dropped, whatever the number of points."""
    for points, modes in (2048, 2), (20_000, 2), (20_000, 5):
        outer, inner = (np.linalg.qr(rng.standard_normal((n, modes)))[0] for n in (points, modes))
        basis = (outer * np.geomspace(1, 1e-5, modes) @ inner.T).astype(dtype)
        assert pyops.orthonormalize(basis).any(0).all()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ENCODERS)
@both_dtypes
def test_packed_block(name, phase, dtype):
    """A packed block gives the same as the basis itself, with gradients packed likewise."""
    for points in 7, 64:
        problem = representative(name).problem(points=points).map(dtype)
        block = pack_basis(problem.arrays["basis"])
        packed = problem.having(basis=block, hbasis=pack_basis(problem.arrays["hbasis"]))
        expected = [*problem.run(phase)]
        if "backward" in phase:
            expected[1] = pack_basis(expected[1])
        assert_same(packed.run(phase), expected)
        assert_same(packed.having(hbasis=None).run(phase), zero_tangent(packed).run(phase))
        kept = [*expected]
        kept[-1] = None
        if phase == "backward":
            assert_same(packed.run(phase, wanted=list(problem.op.signature.inputs)[:1]), kept)


def zero_tangent(problem):
    return problem.having(hbasis=np.zeros_like(problem.arrays["hbasis"]))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_pack_and_unpack(layout, rng):
    basis = rng.standard_normal((5, 3))
    block = pack_basis(layout(basis))
    assert block.dtype.isnative
    assert block.tolist() == basis.T.ravel().tolist()
    unpacked = unpack_basis(block, modes=3)
    assert unpacked.tolist() == basis.tolist()
    assert np.shares_memory(unpacked, block)
    assert unpack_basis(np.stack([block, block]), modes=3).shape == (2, 5, 3)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ENCODERS)
@both_dtypes
def test_gradients_by_sample(name, packed, dtype):
    """Gradients per sample add up to the gradient of all samples."""
    for points, modes in (7, 3), (41, 35), (40, 1):
        problem = representative(name).problem(points=points, modes=modes).map(dtype)
        first = next(iter(problem.op.signature.inputs))
        if packed:
            problem = problem.having(basis=pack_basis(problem.arrays["basis"]))
        summed = problem.run("backward")
        together = problem.run("backward", per_sample=True)
        x, gy = problem.arrays[first], problem.arrays["gy"]
        tolerance = 1000 * np.finfo(dtype).eps
        alone = [
            problem.having(**{first: x[s : s + 1], "gy": gy[s : s + 1]}).run("backward")[1]
            for s in range(len(x))
        ]
        blocks = np.stack([a if packed else pack_basis(a) for a in alone])
        assert_close(together, [summed[0], blocks], tolerance)
        total = together[1].sum(0)
        expected = summed[1] if packed else pack_basis(summed[1])
        assert_close([total], [expected], tolerance)
        out = np.ones_like(blocks)
        problem.run("backward", per_sample=True, out=[None, out], accumulate=True)
        assert_close([out], [1 + together[1]], tolerance)
        for threads in 1, 2, 5:
            pyops.set_num_threads(threads)
            assert_same(problem.run("backward", per_sample=True), together)


def test_gradients_by_sample_of_dependent_columns(rng):
    problem = representative("ono_encode").problem(points=30, modes=8)
    problem = with_dependent_columns(problem, rng, float)
    _, blocks = problem.run("backward", per_sample=True)
    _, summed = problem.run("backward")
    assert_close([unpack_basis(blocks, modes=8).sum(0)], [summed], 1e-12)
    assert not unpack_basis(blocks, modes=8)[:, :, DEPENDENT].any()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", BASES)
def test_second_turn_and_gram_schmidt_agree(name, phase):
    """A nearly dependent column switches the whole basis to the other algorithm."""
    for condition in 3, 60, 1e4:
        basis = conditioned(50, 6, condition)
        problem = representative(name).problem(points=50, modes=6).having(basis=basis)
        assert_close(problem.run(phase), reference(problem, phase), 1e-13 * condition**2)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("phase", PHASES)
def test_more_columns_than_rows(name, phase):
    problem = representative(name).problem(points=4, modes=5)
    caller = name if phase == "forward" else f"{name}\\.{phase}"
    message = f"^{caller}: basis: expected modes <= points, got modes=5 and points=4 from shape"
    with pytest.raises(ValueError, match=message):
        problem.run(phase)
    if name != "orthonormalize":
        with pytest.raises(ValueError, match=message):
            problem.having(basis=np.ones(20), hbasis=np.ones(20)).run(phase)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1, TypeError, r"ono_encode.backward: per_sample: expected True or False, got 1"),
        ("yes", TypeError, r"ono_encode.backward: per_sample: expected True or False, got 'yes'"),
    ],
)
def test_refused_per_sample(value, error, message):
    with pytest.raises(error, match=message):
        representative("ono_encode").problem().run("backward", per_sample=value)


def test_no_gradients_by_sample():
    with pytest.raises(ValueError, match="per_sample: expected False, lno_encode has no such"):
        representative("lno_encode").problem().run("backward", per_sample=True)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b: pack_basis(b.tolist()), TypeError, "pack_basis: basis: expected a NumPy array"),
        (lambda b: pack_basis(b[0]), ValueError, r"pack_basis: basis: expected \(points, modes\)"),
        (lambda b: pack_basis(b[:0]), ValueError, r"pack_basis: basis: expected sizes of at least"),
        (lambda b: unpack_basis(b.ravel(), modes=4), ValueError, "block: expected length points"),
        (lambda b: unpack_basis(b[0, 0], modes=1), TypeError, "block: expected a NumPy array"),
        (lambda b: unpack_basis(b.ravel(), modes=0), ValueError, "modes: expected an integer"),
        (lambda b: unpack_basis(b.ravel(), modes=3.0), TypeError, "modes: expected a positive"),
    ],
)
def test_refused_blocks(call, error, message):
    with pytest.raises(error, match=message):
        call(np.ones((5, 3)))


def test_references_agree(rng):
    """The reference has the properties that define Q and R."""
    basis = rng.standard_normal((9, 4))
    q, r = gram_schmidt(basis)
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(q @ r, basis, atol=1e-14)
    u = rng.standard_normal((3, 9))
    np.testing.assert_allclose(
        ono_encode.forward(u, basis), u @ orthonormalize.forward(basis), atol=1e-14
    )
