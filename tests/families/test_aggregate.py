"""Reductions of messages whose derivatives are not those of a sum of some messages."""

import numpy as np
import pytest

import pyops
from pyops import Graph
from pyops._message_statistics import FIRST
from pyops._message_statistics import STATISTICS as TABLE

from ..reference import reference
from ..support.cases import PHASES, SELECTING, STATISTICS, Case
from ..support.compare import assert_close

both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def into_one(messages, dtype=np.float64):
    """Return a graph whose first destination gets these messages, the second none."""
    messages = np.array(messages, dtype)
    return Graph(range(len(messages)), [0] * len(messages), len(messages), 2), messages[:, None]


def derivatives(messages, **options):
    """Return gradients by messages, and the symmetric matrix of second derivatives."""
    graph, x = into_one(messages)
    gy = np.array([[1.0], [5.0]])
    first = pyops.aggregate.backward(graph, x, gy=gy, **options)[0][:, 0]
    columns = [
        pyops.aggregate.double_backward(graph, x, gy=gy, hx=h[:, None], **options)[0][:, 0]
        for h in np.eye(len(x))
    ]
    return first, np.stack(columns, 1)


def value(messages, **options):
    graph, x = into_one(messages)
    y = pyops.aggregate(graph, x, **options)
    assert y[1, 0] == 0
    return y[0, 0]


def test_values():
    m = np.array([1.0, 4.0, 2.0, 8.0])
    assert value(m, reduce="median") == 2
    assert value(m[:3], reduce="median") == 2
    assert value(m, reduce="mul") == 64
    assert value(m, reduce="amax") == 8
    assert value(m, reduce="amin") == 1
    assert value(m, reduce="var") == pytest.approx(m.var())
    assert value(m, reduce="std") == pytest.approx(m.std())
    assert value(m, reduce="powermean") == pytest.approx(m.mean())
    assert value(m, reduce="powermean", power=2) == pytest.approx(np.sqrt((m**2).mean()))
    assert value(m, reduce="powermean", power=-1) == pytest.approx(1 / (1 / m).mean())
    assert value(m, reduce="powermean", power=0) == pytest.approx(64**0.25)
    assert value(m, reduce="softmax", temperature=0) == pytest.approx(m.mean())
    assert value(m, reduce="softmax", temperature=50) == pytest.approx(8)
    assert value(m, reduce="softmax", temperature=-50) == pytest.approx(1)


@pytest.mark.parametrize("zeros", range(4))
def test_products_with_zeros(zeros):
    """First and second derivatives are products of the other messages."""
    m = np.array([2.0, 3.0, -0.5, 4.0])
    m[:zeros] = 0
    if zeros:
        m[0] = -0.0
    first, second = derivatives(m, reduce="mul")
    np.testing.assert_allclose(first, [np.delete(m, i).prod() for i in range(4)], rtol=1e-15)
    expected = [[0 if i == j else np.delete(m, [i, j]).prod() for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(second, expected, rtol=1e-14)


def test_products_with_small_messages():
    m = np.array([1e-7, 3.0, 2e-9, 4.0])
    _, second = derivatives(m, reduce="mul")
    expected = [[0 if i == j else np.delete(m, [i, j]).prod() for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(second, expected, rtol=1e-6, atol=1e-6)


@both_types
def test_variance_does_not_cancel(dtype, rng):
    """A mean of 1e5 costs the messages' own rounding alone."""
    graph, x = into_one(1e5 + rng.standard_normal(100), dtype)
    for reduce in "var", "std":
        expected = getattr(np, reduce)(x.astype(np.float64))
        np.testing.assert_allclose(pyops.aggregate(graph, x, reduce=reduce)[0, 0], expected, 1e-6)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_equal_messages(count):
    """Deviations of equal messages are exactly 0, and so is their derivative."""
    m = np.full(count, 0.1)
    assert value(m, reduce="var") == value(m, reduce="std") == 0
    for found in derivatives(m, reduce="std"):
        assert not found.any()
    first, second = derivatives(m, reduce="var")
    assert not first.any()
    np.testing.assert_allclose(second, 2 / count * (np.eye(count) - 1 / count), atol=1e-15)


@pytest.mark.parametrize("power", [-1, 0, 0.5, 1, 1.5, 2, 3])
def test_powers_of_zero(power):
    """Infinite derivatives are replaced by 0; with p = 1 and 2 they are finite."""
    m = np.array([0.0, 1.0, 2.0])
    y = value(m, reduce="powermean", power=power)
    first, second = derivatives(m, reduce="powermean", power=power)
    assert np.isfinite([y, *first, *second.ravel()]).all()
    if power <= 0:
        assert y == 0
        assert not first.any()
    else:
        assert y == pytest.approx((m**power).mean() ** (1 / power))
        assert first[0] == (pytest.approx(1 / 3) if power == 1 else 0)
    assert value([0.0, 0.0], reduce="powermean", power=power) == 0


@pytest.mark.parametrize(("power", "exists"), [(2, True), (3, True), (0.5, False), (2.5, False)])
def test_powers_of_negative_messages(power, exists):
    m = np.array([-1.0, 1.0, 3.0])
    y = value(m, reduce="powermean", power=power)
    assert np.isnan(y) != exists
    if exists:
        assert y == pytest.approx((m**power).mean() ** (1 / power))


@pytest.mark.parametrize(("scale", "power"), [(1e200, 3), (1e-200, 3), (1e200, -3), (1e-200, -3)])
def test_powers_do_not_overflow(scale, power):
    m = np.array([1.0, 2.0])
    found = value(scale * m, reduce="powermean", power=power)
    assert found == pytest.approx(scale * value(m, reduce="powermean", power=power))


@pytest.mark.parametrize("temperature", [1.0, -1.0, 1e3])
def test_softmax_of_large_messages(temperature):
    m = np.array([1e6, -1e6, 5.0])
    expected = 1e6 if temperature > 0 else -1e6
    assert value(m, reduce="softmax", temperature=temperature) == expected
    first, _ = derivatives(m, reduce="softmax", temperature=temperature)
    np.testing.assert_allclose(first, m == expected, atol=1e-200)


@both_types
@pytest.mark.parametrize("degree", [1, 2, 3, 64, 1024, 1025, 3000])
def test_median(degree, dtype, rng):
    """The lower one of both in the middle; its gradient goes to the first that attains it."""
    graph, x = into_one(rng.integers(-9, 10, degree), dtype)
    gy = np.ones((2, 1), dtype)
    for messages in x, -x, x * dtype(1e-30), np.where(x == 0, -x, x):
        middle = np.sort(messages[:, 0])[(degree - 1) // 2]
        assert pyops.aggregate(graph, messages, reduce="median")[0, 0] == middle
        gx = pyops.aggregate.backward(graph, messages, gy=gy, reduce="median")[0]
        first = np.argmax(messages[:, 0] == middle)
        np.testing.assert_array_equal(np.flatnonzero(gx), first)


@both_types
def test_median_of_special_values(dtype):
    infinite = [np.inf, -np.inf, 1, 2]
    graph, x = into_one(infinite, dtype)
    assert pyops.aggregate(graph, x, reduce="median")[0, 0] == 1
    x[[1, 3]] = np.nan
    assert np.isnan(pyops.aggregate(graph, x, reduce="median")[0, 0])
    gx = pyops.aggregate.backward(graph, x, gy=np.ones((2, 1), dtype), reduce="median")[0]
    np.testing.assert_array_equal(gx[:, 0], [0, 1, 0, 0])


@pytest.mark.parametrize("reduce", [*STATISTICS, *SELECTING])
def test_nan_stays_in_its_row_and_column(reduce, rng):
    graph = Graph(rng.integers(0, 9, 40), rng.integers(0, 7, 40), 9, 7)
    x = rng.uniform(0.5, 1.5, (9, 4))
    y = pyops.aggregate(graph, x, reduce=reduce)
    x[3, 2] = np.nan
    found = pyops.aggregate(graph, x, reduce=reduce)
    expected = np.zeros(y.shape, bool)
    expected[graph.dst[graph.src == 3], 2] = True
    np.testing.assert_array_equal(np.isnan(found), expected)
    np.testing.assert_array_equal(found[~expected], y[~expected])


@pytest.mark.parametrize("reduce", [*STATISTICS, "median"])
def test_columns_are_reduced_by_themselves(reduce, rng):
    graph = Graph(rng.integers(0, 500, 9000), rng.integers(0, 300, 9000) ** 2 // 300, 500, 300)
    x, edge = rng.uniform(0.9, 1.1, (500, 9)), rng.uniform(0.9, 1.1, (9000, 5))
    weight = rng.uniform(0.9, 1.1, 9000)
    y = pyops.aggregate(graph, x, edge, weight, reduce=reduce)
    halves = (x, None), (None, edge)
    parts = [pyops.aggregate(graph, *some, weight, reduce=reduce) for some in halves]
    assert_close([y], [np.concatenate(parts, 1)], 1e-15)


def test_codes():
    """The kernels' codes are positions among the choices of the declaration."""
    signature = pyops.aggregate.signature
    assert signature.options["reduce"].choices[FIRST - 1 :] == tuple(r.name for r in TABLE)
    assert {row.option for row in TABLE if row.option} <= signature.options.keys()


@both_types
@pytest.mark.parametrize("power", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("reduce", STATISTICS)
def test_nan_beside_zero(reduce, power, dtype):
    for messages in [0, np.nan], [np.nan, 0], [0, np.nan, 1]:
        graph, x = into_one(messages, dtype)
        assert np.isnan(pyops.aggregate(graph, x, reduce=reduce, power=power)[0]).all()


@both_types
def test_softmax_of_one_message(dtype):
    """Weights are those of differences from the message of largest weight."""
    for message in 5.109682775620769e19, -1e20, 1e12, 3.3:
        graph, x = into_one([message], dtype)
        for temperature in 0.7, -3.0, 0.0:
            options = {"reduce": "softmax", "temperature": temperature}
            assert pyops.aggregate(graph, x, **options)[0] == x[0]
            assert pyops.aggregate.backward(graph, x, gy=x[[0, 0]] * 0 + 1, **options)[0] == 1
    graph, x = into_one([-1e30, 5], dtype)
    assert pyops.aggregate(graph, x, reduce="softmax")[0] == 5


@both_types
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_ties_share_the_gradient(reduce, phase, dtype):
    """Messages that are small integers have many ties; no result depends on their order."""
    problem = Case("aggregate", (("reduce", reduce),), (), "shared edges").problem()
    arrays = {name: np.sign(problem.arrays[name]) for name in ("x", "edge", "weight")}
    problem = problem.having(**arrays)
    got = problem.map(dtype).run(phase)
    expected = reference(problem, phase)
    assert_close(got, expected, 100 * np.finfo(dtype).eps)


@both_types
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_shares_of_split_rows(reduce, ids, dtype):
    """Destinations of thousands of entries, ties, NaN and repeated edge ids, without weights."""
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 40, 9_000), np.minimum(rng.integers(0, 300, 9_000) // 100, 2)
    rows = rng.integers(0, 5_000, 9_000) if ids else np.arange(9_000)
    graph = pyops.Graph(src, dst, num_src=40, num_dst=4)
    graph = graph.with_edge_ids(rows, 5_000) if ids else graph
    x, edge = (
        rng.integers(-2, 3, shape).astype(dtype) for shape in ((40, 3), (graph.num_edges, 2))
    )
    x[src[dst == 1][0], 2] = np.nan
    gy = rng.standard_normal((4, 5)).astype(dtype)
    messages = np.concatenate([x[src], edge[rows]], axis=1)
    best = np.maximum if reduce == "amax" else np.minimum
    top = np.stack([best.reduce(messages[dst == i]) for i in range(3)])
    attains = ~(messages < top[dst] if reduce == "amax" else messages > top[dst])
    count = np.stack([attains[dst == i].sum(0) for i in range(3)])
    shares = np.where(attains, gy[dst] / count[dst], 0)
    expected = np.zeros(x.shape), np.zeros(edge.shape)
    np.add.at(expected[0], src, shares[:, :3])
    np.add.at(expected[1], rows, shares[:, 3:])
    found = pyops.aggregate.backward(graph, x, edge, None, None, gy, reduce=reduce)[:2]
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(np.isnan(one), np.isnan(other))
    found, expected = ([np.nan_to_num(a) for a in some] for some in (found, expected))
    assert_close(found, expected, 200 * np.finfo(dtype).eps)
