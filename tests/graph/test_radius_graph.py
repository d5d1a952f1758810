"""Neighbours within a cutoff, against all pairs of all periodic images.

All tests compare with the same list of pairs, so they are one file.
"""

import itertools
import time

import numpy as np
import pytest

import pyops
from pyops import radius_graph

CELLS = {
    "none": (None, None),
    "cubic": (4.0 * np.eye(3), None),
    "skewed": (np.array([[3.0, 0, 0], [1.5, 2.5, 0], [-1.0, 0.7, 4.0]]), None),
    "smaller than the cutoff": (np.array([[1.0, 0, 0], [0.4, 1.1, 0], [0, 0.2, 0.9]]), None),
    "slab": (np.array([[3.0, 0, 0], [1.0, 3.0, 0], [0, 0, 1.0]]), [True, True, False]),
}


@pytest.fixture
def threads():
    yield pyops.set_num_threads
    pyops.set_num_threads(None)


def listed(positions, cutoff, cell, pbc, most=14):
    """Return all edges as (dst, src, offset), by trying every image."""
    found = []
    periodic = np.zeros(3, bool) if cell is None else np.array([True] * 3 if pbc is None else pbc)
    cell = np.eye(3) if cell is None else cell
    ranges = [range(-most, most + 1) if turns else range(1) for turns in periodic]
    for shift in itertools.product(*ranges):
        vectors = positions[None] - positions[:, None] + np.array(shift) @ cell
        near = (vectors**2).sum(2) < cutoff**2
        if not any(shift):
            np.fill_diagonal(near, False)
        found += [(i, j, *np.round(np.array(shift) @ cell, 6)) for i, j in np.argwhere(near)]
    return sorted(found)


@pytest.mark.parametrize("name", CELLS)
def test_all_pairs(name, rng):
    cell, pbc = CELLS[name]
    positions = rng.uniform(-3, 6, (15 if name != "smaller than the cutoff" else 2, 3))
    graph, vectors, offsets, reverse = radius_graph(positions, 2.2, cell=cell, pbc=pbc)
    got = zip(graph.dst, graph.src, *np.round(offsets, 6).T, strict=True)
    assert sorted(map(tuple, got)) == listed(positions, 2.2, cell, pbc)
    expected = positions[graph.src] - positions[graph.dst] + offsets
    assert np.array_equal(vectors, expected)
    assert np.array_equal(vectors[reverse], -vectors)
    assert np.array_equal(graph.src[reverse], graph.dst)
    assert np.array_equal(reverse[reverse], np.arange(len(reverse)))
    assert (np.diff(graph.dst) >= 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batch(dtype, rng):
    """Batched graphs equal separate graphs, each in its cell."""
    parts = [rng.uniform(0, 3, (n, 3)).astype(dtype) for n in (5, 0, 7)]
    cells = np.stack([scale * np.eye(3) for scale in (3.0, 1.0, 4.0)]).astype(dtype)
    batch = np.repeat([0, 1, 2], [5, 0, 7])
    graph, vectors, *_ = radius_graph(np.concatenate(parts), 1.9, cell=cells, batch=batch)
    start, row = 0, 0
    for part, cell in zip(parts, cells, strict=True):
        alone, expected, _, _ = radius_graph(part, 1.9, cell=cell)
        rows = slice(row, row + alone.num_edges)
        assert np.array_equal(graph.src[rows], alone.src + start)
        np.testing.assert_allclose(vectors[rows], expected, atol=1e-6)
        start, row = start + len(part), rows.stop
    assert row == graph.num_edges
    assert vectors.dtype == dtype


def assert_same(one, other):
    for name in "src", "dst":
        assert np.array_equal(getattr(one[0], name), getattr(other[0], name))
    for got, expected in zip(one[1:], other[1:], strict=True):
        assert np.array_equal(got, expected)


def drawn_cell(rng, scale):
    """Return a skewed cell, or one much smaller than it is long, and where it is periodic."""
    cell = scale * (rng.standard_normal((3, 3)) + 2 * rng.uniform(0.2, 1.5) * np.eye(3))
    cell[rng.integers(3)] *= rng.choice([0.3, 1.0, 3.0])
    return cell, rng.random(3) < 0.6


@pytest.mark.parametrize("seed", range(200))
def test_drawn_cells(seed):
    """Equal to all pairs in cells of any form, size and periodicity, and for any scale."""
    rng = np.random.default_rng(seed)
    scale = 10 ** rng.uniform(-3, 3)
    cell, pbc = drawn_cell(rng, scale)
    cutoff = scale * rng.choice([0.4, 1.0, 1.7])
    reach = cutoff * np.linalg.norm(np.linalg.inv(cell), axis=0).max()
    cell *= max(1, reach / 3)
    positions = rng.uniform(-1, 1, (rng.integers(1, 12), 3)) @ cell
    graph, vectors, offsets, reverse = radius_graph(positions, cutoff, cell=cell, pbc=pbc)
    got = zip(graph.dst, graph.src, *np.round(offsets / scale, 6).T, strict=True)
    expected = listed(positions / scale, cutoff / scale, cell / scale, pbc, 5)
    np.testing.assert_allclose(sorted(map(tuple, got)), expected, atol=2e-6)
    assert np.array_equal(vectors[reverse], -vectors)
    assert np.array_equal(reverse[reverse], np.arange(len(reverse)))


def test_against_vesin(rng):
    """The same pairs and images as another library, for many points."""
    vesin = pytest.importorskip("vesin")
    for _ in range(20):
        cell, pbc = drawn_cell(rng, 4.0)
        positions = rng.uniform(-3, 9, (300, 3))
        search = vesin.NeighborList(cutoff=1.3, full_list=True)
        arrays = search.compute(points=positions, box=cell, periodic=pbc, quantities="ijS")
        i, j, shifts = arrays
        graph, _, offsets, _ = radius_graph(positions, 1.3, cell=cell, pbc=pbc)
        got = zip(graph.dst, graph.src, *np.round(offsets, 6).T, strict=True)
        expected = zip(i, j, *np.round(shifts @ cell, 6).T, strict=True)
        np.testing.assert_allclose(sorted(got), sorted(expected), atol=2e-6)


@pytest.mark.parametrize("dim", [1, 2])
def test_dimensions(dim, rng):
    """Points on a line or in a plane are those in space, in a cell that is periodic there."""
    positions, cell = rng.uniform(-2, 5, (40, dim)), 3 * np.eye(dim)
    cell[-1, 0] += 0.7
    space = np.pad(positions, ((0, 0), (0, 3 - dim)))
    box = 9 * np.eye(3)
    box[:dim, :dim] = cell
    along = np.arange(3) < dim
    for options, more in ({}, {}), ({"cell": cell}, {"cell": box, "pbc": along}):
        found = radius_graph(positions, 0.9, **options)
        expected = radius_graph(space, 0.9, **more)
        assert np.array_equal(found[0].src, expected[0].src)
        assert np.array_equal(found[3], expected[3])
        for got, whole in zip(found[1:3], expected[1:3], strict=True):
            assert got.shape == (found[0].num_edges, dim)
            assert np.array_equal(got, whole[:, :dim])


@pytest.mark.parametrize("name", CELLS)
def test_threads(name, rng, threads):
    """Results are the same in every bit for any number of threads."""
    cell, pbc = CELLS[name]
    positions = rng.uniform(-9, 9, (3000 if name != "smaller than the cutoff" else 300, 3))
    found = []
    for number in 1, 2, 5:
        threads(number)
        found.append(radius_graph(positions, 1.1, cell=None if cell is None else 3 * cell, pbc=pbc))
    for other in found[1:]:
        assert_same(other, found[0])


def test_outlier(rng):
    """A point far away from a dense cluster does not make the search quadratic."""
    cluster = rng.uniform(0, 20, (20_000, 3))
    alone, *_ = radius_graph(cluster, 0.5)
    far, *_ = radius_graph(np.concatenate([cluster, [[1e9, 0, 0]]]), 0.5)
    assert np.array_equal(alone.src, far.src)


def test_last_graphs_without_points(rng):
    """`cell` or `pbc` determines the number of graphs."""
    positions, batch = rng.uniform(0, 3, (9, 3)), np.repeat([0, 2], [4, 5])
    cells = np.eye(3) * np.array([3.0, 1.0, 4.0, 1e-9, 2.0])[:, None, None]
    pbc = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 1, 1], [0, 0, 0]], bool)
    for flags in None, pbc[0], pbc:
        first = flags[:3] if flags is pbc else flags
        expected = radius_graph(positions, 1.9, cell=cells[:3], pbc=first, batch=batch)
        assert_same(radius_graph(positions, 1.9, cell=cells, pbc=flags, batch=batch), expected)
    expected = radius_graph(positions, 1.9, cell=cells[[0, 0, 0]], pbc=pbc[:3], batch=batch)
    assert_same(radius_graph(positions, 1.9, cell=cells[0], pbc=pbc, batch=batch), expected)
    for k in 0, 2:
        alone = radius_graph(positions[batch == k], 1.9, cell=cells[0], pbc=pbc[k])
        assert (batch[expected[0].dst] == k).sum() == alone[0].num_edges > 0


@pytest.mark.parametrize("pbc", [(1, 1, 0), (1, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0)])
def test_slabs_of_ase(pbc, rng):
    """Zero cell vectors of nonperiodic directions act like those that ase substitutes."""
    complete_cell = pytest.importorskip("ase.geometry.cell").complete_cell
    pbc, positions = np.array(pbc, bool), rng.uniform(-4, 8, (40, 3))
    cell = np.array([[3.0, 0.5, 0], [1.0, 2.0, 0.7], [-0.2, 0.4, 2.5]]) * pbc[:, None]
    completed = np.where(pbc[:, None], cell, complete_cell(cell))  # which rounds the others
    expected = radius_graph(positions, 2.2, cell=completed, pbc=pbc)
    assert_same(radius_graph(positions, 2.2, cell=cell, pbc=pbc), expected)
    assert expected[0].num_edges > 20
    whole = np.array([[3.0, 0, 0], [0, 3.0, 0], [0, 0, 3.0]])
    graph, *_ = radius_graph(
        np.concatenate([positions, positions]),
        2.2,
        cell=np.stack([whole, cell]),
        pbc=np.stack([[True] * 3, pbc]),
        batch=np.repeat([0, 1], 40),
    )
    second = graph.dst >= 40
    assert np.array_equal(graph.src[second] - 40, expected[0].src)


def test_at_the_cutoff():
    """Both directions of an edge are found or neither, despite rounding."""
    chain = np.arange(50)[:, None] * np.array([0.1, 0.3, 0.7])
    length = np.linalg.norm([0.1, 0.3, 0.7])
    graph, vectors, _, reverse = radius_graph(chain, length)
    assert np.array_equal(vectors[reverse], -vectors)
    assert np.array_equal(graph.src[reverse], graph.dst)


def test_time_is_linear(rng):
    def seconds(count):
        positions = rng.uniform(0, (count / 10) ** (1 / 3), (count, 3))
        start = time.process_time()
        graph, *_ = radius_graph(positions, 0.8)
        assert graph.num_edges > 10 * count
        return time.process_time() - start

    assert min(seconds(16_000) for _ in range(3)) < 40 * min(seconds(1000) for _ in range(3)) + 0.1


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e12])
def test_far_points(far, rng):
    """The number of bins is bounded for points far apart and for large graph numbers."""
    points = rng.uniform(0, 3, (60, 3))
    points[::7] += far * rng.integers(-1, 2, (9, 3))
    owner = rng.integers(0, 3, 60)
    graph, *_ = radius_graph(points, 1.2, batch=owner * (2**62 // 3))
    near = np.linalg.norm(points[:, None] - points, axis=-1) < 1.2
    near &= (owner[:, None] == owner) & ~np.eye(60, dtype=bool)
    assert {*zip(graph.dst, graph.src, strict=True)} == {*zip(*np.nonzero(near), strict=True)}
    assert graph.num_edges == near.sum()


def test_nothing():
    graph, vectors, offsets, reverse = radius_graph(np.zeros((0, 3)), 1.0, cell=np.eye(3))
    assert (graph.num_src, graph.num_edges) == (0, 0)
    assert vectors.shape == offsets.shape == (0, 3)
    assert reverse.shape == (0,)
    assert radius_graph(np.zeros((1, 3)), 1.0)[0].num_edges == 0


POINTS = np.zeros((4, 3))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((None, 1.0), {}, TypeError, "positions: expected a NumPy array, got None"),
        ((POINTS.astype(int), 1.0), {}, TypeError, "positions: expected float32 or float64"),
        ((POINTS[:, :0], 1.0), {}, ValueError, r"positions: expected shape \(num_nodes, 3\)"),
        ((POINTS[:, :2], 1.0), {"cell": np.eye(3)}, ValueError, r"cell: expected shape \(2, 2\)"),
        ((POINTS + 1e200, 1.0), {}, ValueError, "positions: expected numbers up to 1e150"),
        ((POINTS + np.nan, 1.0), {}, ValueError, "positions: expected finite numbers"),
        ((POINTS, "1"), {}, TypeError, "cutoff: expected a number, got '1'"),
        ((POINTS, True), {}, TypeError, "cutoff: expected a number, got True"),
        ((POINTS, 0.0), {}, ValueError, "cutoff: expected a positive number"),
        ((POINTS, np.inf), {}, ValueError, "cutoff: expected a positive number"),
        ((POINTS, np.nan), {}, ValueError, "cutoff: expected a positive number"),
        ((POINTS, 1e155), {}, ValueError, "cutoff: expected a positive number"),
        ((POINTS, 2**2000), {}, ValueError, "cutoff: expected a positive number"),
        ((POINTS, 1e-170), {}, ValueError, "cutoff: expected a positive number"),
        ((POINTS + 1e15, 1.5), {"cell": np.eye(3)}, ValueError, "positions: expected points with"),
        ((POINTS + 1e20, 1.5), {"cell": np.eye(3)}, ValueError, "positions: expected points with"),
        ((POINTS, 1.0), {"cell": np.eye(3), "pbc": [[1, 2], [3]]}, ValueError, "pbc: expected"),
        ((POINTS, 1.0), {"cell": np.ones(3)}, ValueError, "cell: expected shape"),
        ((POINTS, 1.0), {"cell": np.zeros((3, 3))}, ValueError, "cell: expected finite vectors"),
        ((POINTS, 1.0), {"cell": [[1.0]]}, TypeError, "cell: expected a NumPy array, got list"),
        ((POINTS, 1.0), {"pbc": [True] * 3}, ValueError, "pbc: expected a cell beside it"),
        ((POINTS, 1.0), {"cell": np.eye(3), "pbc": [1, 1, 1]}, ValueError, "pbc: expected three"),
        ((POINTS, 1.0), {"cell": np.eye(3) / 99}, ValueError, "cell: expected one of which the cu"),
        ((POINTS, 1.0), {"cell": np.eye(3) / 1e99}, ValueError, "cell: expected one of which"),
        (
            (POINTS, 1.0),
            {"cell": np.diag([1.0, 1, 0]), "pbc": [True, False, True]},
            ValueError,
            "cell: expected finite vectors that span a volume",
        ),
        (
            (POINTS, 1.0),
            {"cell": np.diag([np.nan, 1, 0]), "pbc": [True, True, False]},
            ValueError,
            "cell: expected finite vectors",
        ),
        (
            (POINTS, 1.0),
            {"cell": np.stack([np.eye(3)] * 2), "batch": [0, 1, 2, 0]},
            ValueError,
            r"cell: expected shape \(3, 3\) or \(num_graphs=3, 3, 3\), got \(2, 3, 3\)",
        ),
        (
            (POINTS, 1.0),
            {"cell": np.stack([np.eye(3)] * 2)},
            ValueError,
            r"cell: expected shape \(3, 3\) or \(num_graphs=1, 3, 3\), got \(2, 3, 3\)",
        ),
        (
            (POINTS, 1.0),
            {"cell": np.eye(3), "pbc": np.ones((2, 3), bool), "batch": [0, 1, 2, 0]},
            ValueError,
            "pbc: expected three bool, or three for each of num_graphs=3, got",
        ),
        ((POINTS, 1.0), {"batch": [0, 1]}, ValueError, "batch: expected num_nodes=4 numbers"),
        ((POINTS, 1.0), {"batch": [0, -1, 0, 0]}, ValueError, "batch: expected num_nodes=4"),
        ((POINTS, 1.0), {"batch": [0.5] * 4}, TypeError, "batch: expected int32 or int64"),
    ],
)
def test_refused(arguments, options, error, message):
    with pytest.raises(error, match=f"^radius_graph: {message}"):
        radius_graph(*arguments, **options)


@pytest.mark.parametrize("size", [1e-200, 1e-103, 1e103, 1e148])
def test_cells_of_any_size(size):
    """Neighbours through the walls, where products of three lengths leave the range."""
    cell = np.diag([size, size, size]) if size > 1e-140 else np.diag([1e-140, 1e-140, 1e140])
    shortest = cell[0, 0]
    points = shortest * np.array([[0.05, 0.5, 0.5], [0.95, 0.5, 0.5]])
    graph, vectors, *_ = radius_graph(points, 0.2 * shortest, cell=cell)
    assert graph.num_edges == 2
    np.testing.assert_allclose(abs(vectors[:, 0]), 0.1 * shortest)


def test_crystals_by_any_cell(rng):
    """Every edge of a supercell is one of the cell, and so are the sums over neighbours."""
    cell, atoms = np.array([[2.0, 0, 0], [0.5, 2.2, 0], [0, 0.3, 1.9]]), rng.uniform(0, 2, (2, 3))
    double = np.concatenate([atoms, atoms + cell[0]])
    larger = cell * np.array([[2.0], [1], [1]])
    sums = []
    for points, box in (atoms, cell), (double, larger):
        graph, vectors, _, reverse = radius_graph(points, 3.0, cell=box)
        rng = np.random.default_rng(1)
        weights = rng.standard_normal((8, 2))
        lengths = np.linalg.norm(vectors, axis=1)
        radial = np.stack([np.exp(-k * lengths) for k in range(1, 7)], 1)
        embedding = radial[:, :2] * (1 + graph.src[:, None] % 2)
        y = pyops.dimenet_aggregate(
            graph, vectors, radial, embedding, weights,
            num_spherical=3, exclude="image", reverse=reverse,
        )  # fmt: skip
        sums.append([y[graph.dst % 2 == k].sum(0) / (len(points) / 2) for k in range(2)])
    np.testing.assert_allclose(*sums, rtol=1e-11)


@pytest.mark.parametrize(
    ("library", "hint"),
    [("torch", r"tensor.detach\(\).numpy\(\)"), ("jaxlib._jax", "numpy.asarray")],
)
def test_arrays_of_other_libraries(library, hint):
    """The message says how to convert."""
    other = type("Array", (), {"__module__": library})()
    for given in (other, None), (np.eye(3), other):
        with pytest.raises(TypeError, match=f"; pass {hint}"):
            pyops.radius_graph(given[0], 1.0, cell=given[1])
