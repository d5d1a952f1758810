"""Radial and spherical bases: known values, accuracy at small distances, unwanted results."""

import importlib.util
import pickle
from itertools import product

import numpy as np
import pytest
from scipy.special import spherical_jn

import pyops
from pyops._call.compound import CompoundPhase

from ..reference import spherical_basis as reference
from ..support.cases import PHASES, representative
from ..support.compare import assert_close, assert_same

OPTIONS = {"num_spherical": 3, "num_radial": 2, "exponent": 4}


def arrays(rng, graph, degrees=3, radial=2, channels=4, middle=3):
    rows, edges = degrees * radial, graph.num_edges
    shapes = (edges, 3), (edges, rows), (edges, channels), (rows + channels, middle)
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.skipif(not importlib.util.find_spec("sphericart"), reason="no sphericart")
@pytest.mark.parametrize("max_degree", [0, 1, 4, 10])
def test_harmonics_are_those_of_sphericart(max_degree, rng):
    import sphericart

    vectors, gy = rng.standard_normal((50, 3)), rng.standard_normal((50, (max_degree + 1) ** 2))
    peer = sphericart.SphericalHarmonics(max_degree)
    y, slopes = peer.compute_with_gradients(vectors)
    assert_close([pyops.spherical_harmonics(vectors, max_degree=max_degree)], [y], 1e-13)
    expected = np.einsum("ek,edk->ed", gy, slopes)
    got = pyops.spherical_harmonics.backward(vectors, gy, max_degree=max_degree)
    assert_close(got, [expected], 1e-12)


def test_harmonics_are_orthonormal():
    nodes, weights = np.polynomial.legendre.leggauss(12)
    angles = np.arange(24) * np.pi / 12
    z, angle = (a.ravel() for a in np.meshgrid(nodes, angles, indexing="ij"))
    r = np.sqrt(1 - z * z)
    y = pyops.spherical_harmonics(
        np.stack([r * np.cos(angle), r * np.sin(angle), z], 1), max_degree=10
    )
    gram = y.T @ (np.repeat(weights, 24)[:, None] * np.pi / 12 * y)
    np.testing.assert_allclose(gram, np.eye(121), atol=1e-13)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_lengths_do_not_matter(scale, rng):
    vectors = rng.standard_normal((20, 3)).astype(np.float32)
    y = pyops.spherical_harmonics(np.float32(scale) * vectors, max_degree=6)
    np.testing.assert_allclose(y, pyops.spherical_harmonics(vectors, max_degree=6), atol=2e-6)


def test_a_zero_vector_has_no_direction():
    y = pyops.spherical_harmonics(np.zeros((1, 3)), max_degree=2)
    assert y[0, 0] == pytest.approx(np.sqrt(1 / (4 * np.pi)))
    (gradient,) = pyops.spherical_harmonics.backward(np.zeros((1, 3)), y + 1, max_degree=2)
    assert not gradient.any()


def test_known_zeros_and_norms():
    x = np.array([0.5])
    y = pyops.spherical_basis(x, num_spherical=7, num_radial=1).ravel()
    u = 1 / 0.5 - 28 * 0.5**5 + 48 * 0.5**6 - 21 * 0.5**7
    for degree, zero in {0: np.pi, 1: 4.493409457909064, 2: 5.76345919689455}.items():
        norm = np.sqrt(2) / abs(spherical_jn(degree + 1, zero))
        expected = u * norm * spherical_jn(degree, zero * 0.5)
        assert y[degree] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("degree", [0, 3, 6, 10, 15])
def test_small_distances_in_single_precision(degree):
    """Results are accurate where closed forms of the Bessel functions cancel."""
    x = np.geomspace(1e-3, 0.99, 400).astype(np.float32)
    sizes = {"num_spherical": degree + 1, "num_radial": 4}
    exact = pyops.spherical_basis(x.astype(np.float64), **sizes)
    error = abs(pyops.spherical_basis(x, **sizes) - exact)
    slopes = [pyops.spherical_basis.jvp(x.astype(float), np.ones(400), **sizes)]
    bound = 3e-6 * (abs(exact) + abs(slopes[0] * x[:, None]) + 1e-3 * abs(exact).max(0))
    assert (error <= bound)[:, degree * 4 :].all()
    zeros = reference.zeros(degree, 4)
    for n, zero in enumerate(zeros):
        norm = np.sqrt(2) / abs(spherical_jn(degree + 1, zero))
        u, _ = reference.envelope(x.astype(float), 5)
        expected = u * norm * spherical_jn(degree, zero * x.astype(float))
        scale = abs(expected) + 1e-3 * abs(expected).max()
        assert (abs(exact[:, degree * 4 + n] - expected) <= 1e-9 * scale)[x < 0.9].all()


@pytest.mark.parametrize(
    ("frequency", "distance"),
    [*product([0.1, 1.0, 3.0], [0.001, 0.01, 0.07, 0.3]), *product([1e13, -1e18], [0.25, 0.5])],
)
def test_waves_in_single_precision(frequency, distance):
    """Results are accurate where the slope of sin(f x) / x cancels, and where f^3 overflows."""
    values = [distance], [frequency], [[-0.2]], [1.0], [1.0]
    single = [np.array(a, np.float32) for a in values]
    double = [a.astype(float) for a in single]
    for phase, count in (("backward", 3), ("double_backward", 5)):
        call = getattr(pyops.radial_basis, phase)
        for got, expected in zip(call(*single[:count]), call(*double[:count]), strict=True):
            assert got == pytest.approx(expected, rel=2e-6)


def test_smallest_basis_at_a_small_distance():
    """Closed forms in float32 are wrong by factors of tens to hundreds here."""
    y = pyops.spherical_basis(np.array([0.02], np.float32), num_spherical=7, num_radial=1)
    assert y[0, 6] == pytest.approx(5.33e-7, rel=2e-3)


def nearest(dtype):
    """Return distances down to the smallest number, and one shared with another vector."""
    limits = np.finfo(dtype)
    return np.array([1e-6, 1e-13, 5e-20, 1e-30, limits.tiny, limits.smallest_subnormal, 0.3], dtype)


def agree(got, expected, scale, shift=0):
    """Assert equality to some units in the last place, infinities beyond the range included.

    Below the range x may be off by one subnormal, and powers of x are rounded before they are
    multiplied by the norms, with zeros up to 5000.
    """
    limits = np.finfo(got.dtype)
    assert got.shape == expected.shape
    assert not np.isnan(got).any()
    beyond = abs(expected) > limits.max
    assert (got[beyond] == np.sign(expected[beyond]) * np.inf).all()
    bound = 60 * limits.eps * scale + limits.smallest_subnormal * (5e3 + 8 * shift)
    assert (abs(got - expected) <= bound)[~beyond].all()


def leading_terms(x, sizes):
    """Return the spherical basis at small distances and its derivatives, in extended precision."""
    derivatives = [[], [], [], []]
    for degree in range(sizes["num_spherical"]):
        for zero in map(np.longdouble, reference.zeros(degree, sizes["num_radial"])):
            norm = np.sqrt(np.longdouble(2)) / abs(spherical_jn(degree + 1, float(zero)))
            first = norm * zero**degree / np.prod(np.arange(1.0, 2 * degree + 2, 2))
            second = -first * zero**2 / (2 * (2 * degree + 3))
            third = -second * zero**2 / (4 * (2 * degree + 5))
            terms = [(first, degree - 1), (second, degree + 1), (third, degree + 3)]
            for order in derivatives:
                order.append(sum((c * x ** float(p) for c, p in terms if c), start=0 * x))
                terms = [(c * p, p - 1) for c, p in terms]
    return [np.stack(order, 1) for order in derivatives]


COTANGENTS = {
    "none": lambda gy, degree: 0 * gy,
    "degree 0": lambda gy, degree: np.where(degree == 0, gy, 0),
    "all but degree 0": lambda gy, degree: np.where(degree > 0, gy, 0),
    "every third": lambda gy, degree: np.where(np.arange(gy.shape[1]) % 3 == 1, gy, 0),
    "all": lambda gy, degree: gy,
}


@pytest.mark.parametrize("hx", [1.0, -2e-30, 0.0])
@pytest.mark.parametrize("columns", COTANGENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spherical_basis_at_the_smallest_distances(dtype, columns, hx, rng):
    """Degree 0 diverges to infinity; the other degrees are not affected."""
    sizes = {"num_spherical": 10, "num_radial": 3}
    x = nearest(dtype)
    tiny = x[:-1].astype(np.longdouble)
    y, slope, curvature, next_one = leading_terms(tiny, sizes)
    gy = COTANGENTS[columns](rng.standard_normal((len(x), 30)), np.arange(30) // 3).astype(dtype)
    h = np.full_like(x, hx)
    found = pyops.spherical_basis(x, **sizes)
    agree(found[:-1], y, abs(y), abs(slope))
    (by_x,) = pyops.spherical_basis.backward(x, gy, **sizes)
    (second, dgy) = pyops.spherical_basis.double_backward(x, gy, h, **sizes)
    tangent = pyops.spherical_basis.jvp(x, h, **sizes)
    assert_same([tangent], [dgy])
    g, h = gy[:-1].astype(np.longdouble), h[:-1].astype(np.longdouble)
    for got, factor, here, after in (by_x, 1, slope, curvature), (second, h, curvature, next_one):
        terms = factor * (g * here).sum(1)
        agree(got[:-1], terms, abs(factor) * abs(g * here).sum(1), abs(g * after).sum(1))
    agree(dgy[:-1], h[:, None] * slope, abs(h[:, None] * slope), abs(curvature))
    assert columns != "none" or not (by_x.any() or second.any())
    alone = pyops.spherical_basis.double_backward(x[-1:], gy[-1:], np.full(1, hx, dtype), **sizes)
    assert_same([second[-1:], dgy[-1:]], alone)


@pytest.mark.parametrize("hx", [1.0, -2e-30, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_radial_basis_at_the_smallest_distances(dtype, hx, rng):
    """The basis and its derivatives are bounded there; a frequency may be 0."""
    x, w = nearest(dtype)[:-1], np.array([0, 0.5, 3, -20], dtype)
    gy, hw = rng.standard_normal((len(x), 4)).astype(dtype), rng.standard_normal(4).astype(dtype)
    h = np.full_like(x, hx)
    gy[:, 2] = 0
    found = pyops.radial_basis(x, w)
    gradients = pyops.radial_basis.backward(x, w, gy)
    seconds = pyops.radial_basis.double_backward(x, w, gy, h, hw)
    assert_same([pyops.radial_basis.jvp(x, w, h, hw)], [seconds[2]])
    x, h = (a.astype(np.longdouble)[:, None] for a in (x, h))
    g, hw, w = (a.astype(np.longdouble) for a in (gy, hw, w))
    t = w * x
    y, by_x, by_w = w * (1 - t**2 / 6), -(w**3) * x / 3 * (1 - t**2 / 10), 1 - t**2 / 2
    xx, ww = -(w**3) / 3 * (1 - t**2 * 3 / 10), -x * t * (1 - t**2 / 6)
    xw = -w * t * (1 - t**2 / 6) - 168 * x**5 * (1 - x) ** 2
    agree(found, y, abs(y))
    wanted = (
        ([g * by_x], 1, gradients[0]),
        ([g * by_w], 0, gradients[1]),
        ([g * h * xx, g * hw * xw], 1, seconds[0]),
        ([g * h * xw, g * hw * ww], 0, seconds[1]),
        ([h * by_x, hw * by_w], None, seconds[2]),
    )
    for terms, axis, got in wanted:
        expected, scale = sum(terms), sum(map(abs, terms))
        if axis is not None:
            expected, scale = expected.sum(axis), scale.sum(axis)
        agree(got, expected, scale)


@pytest.mark.parametrize("op", [pyops.radial_basis, pyops.spherical_basis])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_cutoff_is_smooth(op, dtype):
    """The basis and two derivatives are 0 from the cutoff on, and at distances up to 0."""
    x = np.array([1, 1.5, 1e30, np.inf, 0, -0.5], dtype)
    more = [np.array([3.0, 6.0], dtype)] if op is pyops.radial_basis else []
    y = op(x, *more)
    gradients = op.backward(x, *more, y + 1)
    seconds = op.double_backward(x, *more, y + 1, *map(np.ones_like, [x, *more]))
    for array in y, *gradients, *seconds:
        assert not array.any()
    near = np.array([1 - 2**-10], dtype)
    (second, *_, dgy) = op.double_backward(
        near, *more, op(near, *more) + 1, np.ones_like(near), *(None for _ in more)
    )
    assert abs(dgy).max() < 1e-2
    assert abs(second).max() < 20


def test_basis_is_both(rng):
    x, w = rng.uniform(0.1, 1.1, 30), rng.standard_normal(2)
    grbf, gsbf = rng.standard_normal((30, 2)), rng.standard_normal((30, 6))
    hx, hw = rng.standard_normal(30), rng.standard_normal(2)
    rbf, sbf = pyops.dimenet_basis(x, w, **OPTIONS)
    assert_same([rbf], [pyops.radial_basis(x, w, exponent=4)])
    assert_same([sbf], [pyops.spherical_basis(x, **OPTIONS)])
    (again, saved) = pyops.dimenet_basis.forward(x, w, **OPTIONS)
    assert_same(again, (rbf, sbf))
    gx, gw = pyops.dimenet_basis.backward(x, w, grbf, gsbf, saved=saved, **OPTIONS)
    drbf, dsbf = pyops.dimenet_basis.jvp(x, w, hx, hw, **OPTIONS)
    assert hx @ gx + hw @ gw == pytest.approx((drbf * grbf).sum() + (dsbf * gsbf).sum())
    dx, dw, dgrbf, dgsbf = pyops.dimenet_basis.double_backward(x, w, grbf, gsbf, hx, hw, **OPTIONS)
    assert_close([dgrbf, dgsbf], [drbf, dsbf], 1e-13)
    step = 1e-6
    ends = [
        pyops.dimenet_basis.backward(x + s * hx, w + s * hw, grbf, gsbf, **OPTIONS)
        for s in (step, -step)
    ]
    slope = sum(h @ (a - b) for h, a, b in zip((hx, hw), *ends, strict=True)) / (2 * step)
    assert dx @ hx + dw @ hw == pytest.approx(slope, rel=1e-5)
    assert pickle.loads(pickle.dumps(pyops.dimenet_basis)) is pyops.dimenet_basis
    with pytest.raises(ValueError, match=r"^dimenet_basis: frequencies: expected shape"):
        pyops.dimenet_basis(x, np.ones(3))


@pytest.mark.parametrize(
    ("phase", "wanted", "expected"),
    [
        ("backward", ("distances",), ["spherical_basis", "radial_basis"]),
        ("backward", ("frequencies",), ["radial_basis"]),
        ("double_backward", ("gsbf",), ["spherical_basis"]),
        ("double_backward", ("frequencies", "grbf"), ["radial_basis"]),
        ("double_backward", (), []),
    ],
)
def test_kernels_that_are_not_wanted_do_not_run(phase, wanted, expected, monkeypatch):
    shares, ran = CompoundPhase.shares, []

    def watched(phase, values):
        for part, own in shares(phase, values):
            ran.append(part.declaration)
            yield part, own

    monkeypatch.setattr(CompoundPhase, "shares", watched)
    representative("dimenet_basis").problem().run(phase, wanted=wanted)
    assert ran == expected


def test_nothing_is_written_where_one_output_is_refused():
    problem = representative("dimenet_basis").problem()
    for phase in PHASES:
        out = [np.zeros_like(a) for a in problem.run(phase)]
        with pytest.raises(TypeError, match=r"^dimenet_basis\S*: out: \w+: expected float64 like"):
            problem.run(phase, out=[*out[:-1], out[-1].astype("f")])
        assert not any(a.any() for a in out)
