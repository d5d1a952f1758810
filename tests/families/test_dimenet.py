"""Sums over pairs of edges, as in DimeNet."""

import numpy as np
import pytest

import pyops
from pyops import blocks

from ..reference import reference as oracle
from ..support.cases import PHASES, Problem
from ..support.compare import assert_close, assert_same
from ..support.graphs import drawn, reverses
from .test_bases import arrays

NAMES = "vectors", "radial", "embedding", "weights"


@pytest.mark.parametrize("exclude", ["node", "none"])
@pytest.mark.parametrize("degree", [2, 5, 14, 40])
def test_both_algorithms_agree(exclude, degree, rng):
    """The density algorithm agrees with pairwise evaluation of single outgoing edges."""
    nodes = 12
    src, dst = rng.integers(0, nodes, (2, nodes * degree))
    graph = pyops.Graph(src, dst, nodes)
    inputs = arrays(rng, graph, degrees=7)
    y = pyops.dimenet_aggregate(graph, *inputs, exclude=exclude)
    expected = np.zeros_like(y)
    for e in range(graph.num_edges):  # a single outgoing edge is evaluated by pairs
        into = np.flatnonzero(dst == src[e])
        some = pyops.Graph(
            np.append(src[into] + 1, 0), np.append(0 * into, 1 + dst[e]), nodes + 1, nodes + 1
        )
        rows = np.append(into, e)
        alone = pyops.dimenet_aggregate(
            some, *(a[rows] for a in inputs[:3]), inputs[3], exclude=exclude
        )
        expected[e] = alone[-1]
    assert_close([y], [expected], 1e-12)


def test_zero_vectors_make_no_pair(rng):
    graph = drawn(6, 6, 150)
    vectors, *rest = arrays(rng, graph)
    vectors[::7] = 0
    kept = np.flatnonzero(vectors.any(1))
    smaller = pyops.Graph(graph.src[kept], graph.dst[kept], 6)
    y = pyops.dimenet_aggregate(graph, vectors, *rest, num_spherical=3)
    expected = pyops.dimenet_aggregate(
        smaller, vectors[kept], *(a[kept] for a in rest[:2]), rest[2], num_spherical=3
    )
    assert_close([y[kept]], [expected], 1e-13)
    assert not y[::7].any()
    gradients = pyops.dimenet_aggregate.backward(graph, vectors, *rest, y + 1, num_spherical=3)
    for gradient in gradients[:3]:
        assert not gradient[::7].any()


@pytest.mark.parametrize("degree", [3, 60])
def test_collinear_edges(degree, rng):
    """Derivatives at angles of 0 and 180 degrees are those of the cosine."""
    graph = drawn(4, 4, 4 * degree)
    vectors, *rest = arrays(rng, graph)
    vectors = np.array([1.0, -2.0, 0.5]) * rng.choice([-2.0, -1.0, 1.0], (graph.num_edges, 1))
    gy, *h = (rng.standard_normal(a.shape) for a in (rest[1], vectors, *rest))
    options = {"num_spherical": 3, "exclude": "none"}
    inputs = dict(zip(NAMES, (vectors, *rest), strict=True))
    inputs |= {"gy": gy} | {"h" + name: a for name, a in zip(NAMES, h, strict=True)}
    problem = Problem(pyops.dimenet_aggregate, graph, options, inputs)
    for phase in PHASES:
        for got, expected in zip(problem.run(phase), oracle(problem, phase), strict=True):
            assert abs(got - expected).max() < 1e-10  # derivatives by the vectors are 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_at_a_dense_node(value, rng):
    """NaN spreads to dependent edges, not to edges whose pair with it is excluded."""
    src, dst = rng.integers(0, 3, (2, 300))
    graph = pyops.Graph(src, dst, 3)
    vectors, radial, embedding, weights = arrays(rng, graph)
    embedding[0, 1] = value
    y = pyops.dimenet_aggregate(graph, vectors, radial, embedding, weights, num_spherical=3)
    spoilt = (src == dst[0]) & (dst != src[0])
    assert (~np.isfinite(y).all(1) == spoilt).all()
    gradients = pyops.dimenet_aggregate.backward(
        graph, vectors, radial, embedding, weights, np.ones_like(y), num_spherical=3
    )
    assert np.isfinite(gradients[2]).all()


def star(degree):
    """Return a star: node 0 with an edge from each neighbour, then the excluded reverse edges."""
    leaves, centre = np.arange(1, degree + 1), np.zeros(degree, int)
    return pyops.Graph(np.r_[leaves, centre], np.r_[centre, leaves], degree + 1)


@pytest.mark.parametrize("degree", [3, 10, 30, 90])
def test_an_excluded_pair_may_overflow(degree, rng):
    """The product of an excluded pair may overflow without effect."""
    inputs = [a.astype("f") for a in arrays(rng, star(degree))]
    gy = rng.standard_normal(inputs[2].shape).astype("f")
    inputs[2][0] *= 1e25
    gy[degree] *= 1e25
    found, exact = (
        pyops.dimenet_aggregate.backward(star(degree), *arguments, num_spherical=3)
        for arguments in ((*inputs, gy), [a.astype("d") for a in (*inputs, gy)])
    )
    for got, expected in zip(found, exact, strict=True):
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def crowds(nodes, degree):
    """Return many edges between all pairs of nodes."""
    ends = np.random.default_rng(1).integers(0, nodes, (2, nodes * degree))
    return pyops.Graph(*ends, nodes)


@pytest.mark.parametrize("exclude", ["node", "image", "none"])
@pytest.mark.parametrize("graph", [star(80), crowds(2, 70), crowds(20, 70)], ids=str)
def test_more_edges_than_are_taken_at_once(graph, exclude, rng):
    """Excluded pairs are few per label, or so many that they form a density of their own."""
    options = {"num_spherical": 4, "exclude": exclude}
    if exclude == "image":
        options["reverse"] = reverses(graph)
    inputs = dict(zip(NAMES, arrays(rng, graph, degrees=4), strict=True))
    for name in ("gy", *NAMES):
        like = inputs["embedding" if name == "gy" else name]
        inputs["gy" if name == "gy" else "h" + name] = rng.standard_normal(like.shape)
    problem = Problem(pyops.dimenet_aggregate, graph, options, inputs)
    for phase in PHASES:
        assert_close(problem.run(phase), oracle(problem, phase), 1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-4)])
@pytest.mark.parametrize("given", [NAMES, NAMES[1:], NAMES[2:3], NAMES[3:]], ids=str)
@pytest.mark.parametrize(
    "sizes",
    [(4, 9, 65, 3), (5, 17, 130, 2), (9, 1, 33, 4), (10, 3, 16, 2), (1, 18, 64, 3)],
    ids=str,
)
def test_sizes_beyond_a_block(sizes, given, dtype, tolerance, rng):
    """Any number of channels, radial functions and degrees, beyond the block sizes."""
    degrees, radial, channels, middle = sizes
    graph = drawn(8, 8, 150)
    inputs = dict(zip(NAMES, arrays(rng, graph, degrees, radial, channels, middle), strict=True))
    cotangents = {
        "h" + name: rng.standard_normal(inputs[name].shape) if name in given else None
        for name in NAMES
    }
    inputs["gy"] = rng.standard_normal(inputs["embedding"].shape)
    options = {"num_spherical": degrees, "exclude": "node"}
    problem = Problem(pyops.dimenet_aggregate, graph, options, inputs | cotangents)
    for phase in PHASES:
        got = problem.map(lambda a: a.astype(dtype)).run(phase)
        assert_close(got, oracle(problem, phase), tolerance)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("edges", [0, 2])
def test_no_radial_functions(edges, phase):
    graph = pyops.Graph([0, 1][:edges], [1, 0][:edges], 2)
    sizes = {"vectors": 3, "radial": 0, "embedding": 4, "gy": 4}
    given = {name: np.ones((edges, size)) for name, size in sizes.items()}
    given |= {"weights": np.ones((4, 3))} | {"h" + name: None for name in NAMES}
    problem = Problem(pyops.dimenet_aggregate, graph, {}, given)
    with pytest.raises(ValueError, match=r"radial: expected shape .* a whole num_radial >= 1, got"):
        problem.run(phase)


def several(degree, times):
    """Return a star with multiple edges to and from each of the first four leaves."""
    graph = star(degree)
    repeats = np.where(np.r_[0:degree, 0:degree] < 4, times, 1)
    return pyops.Graph(np.repeat(graph.src, repeats), np.repeat(graph.dst, repeats), degree + 1)


@pytest.mark.parametrize("factor", [1, 1e3, 1e5, 1e7])
@pytest.mark.parametrize("degree", [6, 20, 60, 90])
@pytest.mark.parametrize(("times", "brings"), [(1, "embedding"), (4, "embedding"), (30, "radial")])
def test_excluded_edges_cost_no_digits(times, brings, degree, factor, rng):
    """Excluded edges cause no cancellation, however dominant and however many they are."""
    graph = several(degree, times)
    exact = dict(zip(NAMES, arrays(rng, graph), strict=True))
    exact["gy"] = rng.standard_normal(exact["embedding"].shape)
    exact |= {"h" + name: rng.standard_normal(exact[name].shape) for name in NAMES}
    exact[brings][graph.src == 1, 4 * (brings == "radial") :] *= factor  # of the highest degree
    exact["gy"][graph.dst == 2] *= factor
    exact["hvectors"][graph.src == 3] *= factor
    exact["hvectors"][graph.dst == 4] *= factor
    options = {"num_spherical": 3, "exclude": "node"}
    single = Problem(pyops.dimenet_aggregate, graph, options, exact).map(np.float32)
    double = single.map(np.float64)
    for phase, result, edges in (
        ("forward", 0, graph.dst == 1),
        ("backward", 2, graph.src == 2),
        ("jvp", -1, graph.dst == 1),
        ("double_backward", 4, graph.dst == 3),
    ):
        expected = oracle(double, phase)
        assert_close(double.run(phase), expected, 1e-11)
        got, wanted = single.run(phase)[result][edges], expected[result][edges]
        assert np.abs(got - wanted).max() <= 3e-5 * np.abs(wanted).max(), phase


@pytest.mark.parametrize("degree", [5, 20, 60])
def test_nothing_but_excluded_pairs(degree, rng):
    ends = np.repeat([0, 1], degree)
    graph = pyops.Graph(ends, 1 - ends)
    inputs = [a.astype("f") for a in arrays(rng, graph)]
    gy, *h = (rng.standard_normal(a.shape).astype("f") for a in (inputs[2], *inputs))
    assert not pyops.dimenet_aggregate(graph, *inputs, num_spherical=3).any()
    for result in pyops.dimenet_aggregate.double_backward(graph, *inputs, gy, *h, num_spherical=3):
        assert not result.any()


REVERSED = pyops.Graph([0, 1], [1, 0], 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exclude": "image"}, TypeError, "reverse: expected row numbers with exclude='image'"),
        ({"reverse": [1, 0]}, ValueError, "reverse: expected None without exclude='image'"),
        ({"exclude": "image", "reverse": [1]}, ValueError, "reverse: expected num_edges=2 numb"),
        ({"exclude": "image", "reverse": [1.0, 0]}, TypeError, "reverse: expected int32 or int64"),
        ({"exclude": "image", "reverse": [[1], [0]]}, ValueError, "reverse: expected one dimens"),
        ({"exclude": "image", "reverse": [2, 0]}, IndexError, "reverse: expected indices from -1 "),
        ({"exclude": "image", "reverse": [-2, 0]}, IndexError, "reverse: expected indices from"),
        (
            {"exclude": "image", "reverse": [1, -1]},
            ValueError,
            "reverse: expected the reverse of an",
        ),
        (
            {"exclude": "image", "reverse": [0, 1]},
            ValueError,
            "reverse: expected the reverse of an",
        ),
        ({"exclude": "image", "reverse": "10"}, TypeError, "reverse: expected int32 or int64"),
        ({"num_spherical": 33}, ValueError, "num_spherical: expected an integer from 1 to 32"),
    ],
)
def test_refused(options, error, message, rng):
    inputs = arrays(rng, REVERSED)
    with pytest.raises(error, match=f"^dimenet_aggregate: {message}"):
        pyops.dimenet_aggregate(REVERSED, *inputs, **{"num_spherical": 3, **options})


def test_images(rng):
    """Only the reverse edge is excluded, not other edges to the same node."""
    src, dst = [0, 1, 0, 1, 2], [1, 0, 1, 0, 0]
    graph, reverse = pyops.Graph(src, dst), np.array([1, 0, 3, 2, -1], np.int32)
    inputs = arrays(rng, graph)
    options = {"num_spherical": 3, "exclude": "image"}
    y = pyops.dimenet_aggregate(graph, *inputs, reverse=reverse, **options)
    for other in reverse.astype(float), np.array([1, 0, 2, 3, -1], np.int32), reverse[:4]:
        with pytest.raises((TypeError, ValueError), match="reverse: expected"):
            pyops.dimenet_aggregate(graph, *inputs, reverse=other, **options)
    reverse[:2] = -1  # the same array with other elements
    both = pyops.dimenet_aggregate(graph, *inputs, reverse=reverse, **options)
    assert not np.array_equal(both, y)
    everything = pyops.dimenet_aggregate(graph, *inputs, num_spherical=3, exclude="none")
    one = pyops.Graph(src[:2], dst[:2])
    pair = pyops.dimenet_aggregate(
        one, *(a[:2] for a in inputs[:3]), inputs[3], num_spherical=3, exclude="none"
    )
    assert_close([y[:2]], [everything[:2] - pair], 1e-12)


def test_weights_there_and_back(rng):
    a, b = rng.standard_normal((6, 3)), rng.standard_normal((4, 3))
    weights = blocks.pack_dimenet(a, b)
    parts = blocks.unpack_dimenet(weights, channels=4)
    assert_same(parts, (a, b))
    assert all(np.shares_memory(part, weights) for part in parts)
    assert parts._fields == ("A", "B")


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ((None, np.ones((2, 3))), TypeError, "A: expected a NumPy array, got None"),
        ((np.ones((2, 3)), np.ones((2, 3), "f4")), TypeError, "B: expected float64 like A"),
        ((np.ones((2, 3)), np.ones(3)), ValueError, r"B: expected \(rows, middle\)"),
        ((np.ones((2, 3)), np.ones((2, 4))), ValueError, r"B: expected \(channels, 3\)"),
        ((np.ones((2, 0)), np.ones((2, 0))), ValueError, r"A: expected \(rows, middle\)"),
    ],
)
def test_refused_parts(parts, error, message):
    with pytest.raises(error, match=f"^pack_dimenet: {message}"):
        blocks.pack_dimenet(*parts)


def test_refused_weights():
    with pytest.raises(ValueError, match=r"^unpack_dimenet: weights: expected more than"):
        blocks.unpack_dimenet(np.ones((3, 2)), channels=3)
