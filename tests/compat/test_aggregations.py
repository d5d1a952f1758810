"""Aggregation calls of pylibcugraphops.operators against the corresponding operators."""

import numpy as np
import pytest

import pyops
from pyops.compat import pylibcugraphops
from pyops.compat.pylibcugraphops import operators
from pyops.compat.pylibcugraphops.operators import AggOp

from ..support.compare import assert_close
from ..support.graphs import reverses

NODES, EDGES, WIDTH, TYPES = 9, 40, 5, 3
every_op = pytest.mark.parametrize("op", AggOp)


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


@pytest.fixture
def csc(rng):
    """Return offsets, indices and rows of the edges; the last node is isolated."""
    dst = np.sort(rng.integers(0, NODES - 1, EDGES))
    offsets = np.searchsorted(dst, np.arange(NODES + 1))
    return offsets, rng.integers(0, NODES - 1, EDGES), rng.permutation(EDGES)


@pytest.fixture
def draw(rng, dtype):
    return lambda *shape: rng.standard_normal(shape).astype(dtype)


def empty(draw, *shape):
    return np.full_like(draw(*shape), np.nan)


def tolerance(dtype):
    return 50 * np.finfo(dtype).eps


MESSAGES = ("n2n", "e2n", "n2n_e2n")


@every_op
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("own", ["simple", "concat"])
def test_aggregations(csc, draw, dtype, op, messages, own):
    graph = pylibcugraphops.make_csc(*csc)
    x, edge = draw(NODES, WIDTH), draw(EDGES, 3)
    parts = {"n2n": (x, None), "e2n": (None, edge), "n2n_e2n": (x, edge)}[messages]
    last = x if own == "concat" else None
    options = {"reduce": op.value}
    expected = pyops.aggregate(graph.graph, *parts, None, last, **options)
    width = sum(a.shape[1] for a in parts if a is not None)
    name = f"agg_{own}_{messages}"
    dims = {"e2n": (3, WIDTH), "n2n_e2n": (WIDTH, 3)}.get(messages, ()) if last is not None else ()
    given = [a for a in parts if a is not None]
    given += [x] if name == "agg_concat_e2n" else []
    y, location = empty(draw, *expected.shape), np.zeros((NODES, width), np.int32)
    some = dims if name == "agg_concat_n2n_e2n" else ()
    getattr(operators, f"{name}_fwd")(y, *given, graph, *some, op, location, stream_id=7)
    assert_close([y], [expected], tolerance(dtype))

    gy = draw(*y.shape)
    by_x, by_edge, _, by_own = pyops.aggregate.backward(
        graph.graph, *parts, None, last, gy, **options
    )
    total = by_x if by_own is None else by_own if by_x is None else by_x + by_own
    wanted = [total, by_edge] if messages != "e2n" else [by_edge, total]
    wanted = [a for a in wanted if a is not None]
    outs = [np.full_like(a, np.nan) for a in wanted]
    getattr(operators, f"{name}_bwd")(*outs, gy, graph, *dims, op, location)
    assert_close(outs, wanted, tolerance(dtype))


def slopes(function, arrays, gy, step=1e-6):
    """Return central differences of <gy, function> by each element of each array."""
    results = []
    for number, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            ends = []
            for side in (step, -step):
                moved = [a.copy() for a in arrays]
                moved[number][index] += side
                ends.append((gy * function(*moved)).sum())
            slope[index] = (ends[0] - ends[1]) / (2 * step)
        results.append(slope)
    return results


@every_op
@pytest.mark.parametrize("concat", ["", "concat_"])
def test_weighted(csc, rng, op, concat):
    graph = pylibcugraphops.make_csc(*csc)
    x, weight = rng.standard_normal((NODES, WIDTH)), rng.uniform(0.5, 2, EDGES)

    def value(x, weight):
        y = np.full((NODES, WIDTH * (2 if concat else 1)), np.nan)
        getattr(operators, f"agg_{concat}weighted_n2n_fwd")(y, x, weight, graph, op)
        return y

    y = value(x, weight)
    if op is AggOp.Mean:
        g, terms = graph.graph, weight[csc[2]]
        sums = np.zeros(NODES)
        np.add.at(sums, g.dst, terms)
        mean = np.zeros((NODES, WIDTH))
        np.add.at(mean, g.dst, (terms / sums[g.dst])[:, None] * x[g.src])
        assert_close([y[:, :WIDTH]], [mean], 1e-13)
    gy, outs = rng.standard_normal(y.shape), [np.empty_like(x), np.empty_like(weight)]
    getattr(operators, f"agg_{concat}weighted_n2n_bwd")(*outs, gy, weight, x, graph, op)
    assert_close(outs, slopes(value, [x, weight], gy), 1e-7)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("normed", [True, False])
def test_relations(csc, rng, weighted, own, normed):
    types = rng.integers(0, TYPES, EDGES)
    graph = pylibcugraphops.make_csc_hg(*csc[:2], 1, TYPES, None, types)
    x, weight = rng.standard_normal((NODES, WIDTH)), rng.standard_normal((TYPES, 4))
    given = weight if weighted else None
    bases = weight if weighted else np.eye(TYPES)
    g = graph.graph
    y = np.full((NODES, (bases.shape[1] + own) * WIDTH), np.nan)
    operators.agg_hg_basis_n2n_post_fwd(y, x, given, graph, own, normed)
    expected = np.zeros((NODES, bases.shape[1], WIDTH))
    for j, i, r in zip(g.src, g.dst, types, strict=True):
        share = 1 / ((g.dst == i) & (types == r)).sum() if normed else 1
        expected[i] += share * bases[r][:, None] * x[j]
    expected = expected.reshape(NODES, -1)
    assert_close([y], [np.hstack([expected, x]) if own else expected], 1e-13)

    def value(x, weight):
        y = np.full((NODES, (weight.shape[1] + own) * WIDTH), np.nan)
        operators.agg_hg_basis_n2n_post_fwd(y, x, weight, graph, own, normed)
        return y

    gy, outs = rng.standard_normal(y.shape), [np.empty_like(x), np.empty_like(bases)]
    by_weights = outs[1] if weighted else None
    operators.agg_hg_basis_n2n_post_bwd(outs[0], by_weights, gy, x, given, graph, own, normed)
    count = 2 if weighted else 1
    assert_close(outs[:count], slopes(value, [x, bases], gy)[:count], 1e-7)


@pytest.mark.parametrize("own", [True, False])
def test_messages_between_edges(csc, draw, dtype, own):
    graph = pylibcugraphops.make_csc(*csc)
    reverse, h = reverses(graph.graph), draw(EDGES, WIDTH)
    options = {"exclude": "image", "reverse": reverse}
    y = empty(draw, EDGES, WIDTH * (1 + own))
    operators.agg_dmpnn_e2e_fwd(y, h, graph, reverse, own)
    expected = pyops.edge_to_edge(graph.graph, h, **options)
    assert_close([y], [np.hstack([expected, h]) if own else expected], 0)
    gy, gh = draw(*y.shape), empty(draw, EDGES, WIDTH)
    operators.agg_dmpnn_e2e_bwd(gh, gy, graph, reverse, own)
    (expected,) = pyops.edge_to_edge.backward(graph.graph, h, gy[:, :WIDTH].copy(), **options)
    assert_close([gh], [expected + gy[:, WIDTH:] if own else expected], tolerance(dtype))


@pytest.mark.parametrize("absent", [(), (0,), (1,), (2,), (0, 1), (1, 2)])
@pytest.mark.parametrize("mode", ["concat", "sum"])
def test_edge_updates(csc, draw, dtype, mode, absent):
    offsets, indices, rows = csc
    graph = pylibcugraphops.make_bipartite_csc(offsets, indices, NODES + 2, rows)
    dims = [3, 4, 2] if mode == "concat" else [WIDTH] * 3
    counts = EDGES, NODES + 2, NODES
    arrays = [draw(n, d) for n, d in zip(counts, dims, strict=True)]
    arrays = [None if k in absent else a for k, a in enumerate(arrays)]
    order = np.argsort(rows)
    src, dst = indices[order], graph.graph.dst[order]
    parts = [
        a if ends is None else a[ends]
        for a, ends in zip(arrays, (None, src, dst), strict=True)
        if a is not None
    ]
    expected = np.concatenate(parts, axis=1) if mode == "concat" else sum(parts)
    y = empty(draw, *expected.shape)
    getattr(operators, f"update_efeat_e2e_{mode}_fwd")(y, *arrays, graph)
    assert_close([y], [expected], tolerance(dtype))
    gy = draw(*y.shape)
    dims = [0 if a is None else d for a, d in zip(arrays, dims, strict=True)]
    outs = [None if a is None else np.full_like(a, np.nan) for a in arrays]
    before = np.cumsum([0, *dims]) if mode == "concat" else [0, 0, 0]
    wanted = []
    for a, ends, first in zip(arrays, (np.arange(EDGES), src, dst), before, strict=False):
        if a is None:
            wanted.append(None)
            continue
        wanted.append(np.zeros_like(a))
        np.add.at(wanted[-1], ends, gy[:, first : first + a.shape[1]])
    sizes = dims if mode == "concat" else [WIDTH]
    getattr(operators, f"update_efeat_e2e_{mode}_bwd")(*outs, gy, graph, *sizes)
    assert_close(outs, wanted, tolerance(dtype))


REFUSED = {
    "offsets that decrease": lambda c: pylibcugraphops.make_csc([0, 2, 1, 3], [0, 1, 2]),
    "offsets that end elsewhere": lambda c: pylibcugraphops.make_csc([0, 1, 2, 2], [0, 1, 2]),
    "types too large": lambda c: pylibcugraphops.make_csc_hg([0, 1], [0], 1, 2, None, [2]),
    "types too few": lambda c: pylibcugraphops.make_csc_hg([0, 1], [0], 1, 2, None, []),
    "no graph": lambda c: c(graph=pyops.Graph([0], [0])),
    "no operation": lambda c: c(op="sum"),
    "output of another shape": lambda c: c(y=np.zeros((3, 2))),
    "input of another length": lambda c: c(x=np.zeros((4, 1))),
    "output of another type": lambda c: c(y=np.zeros((3, 1), np.float32)),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_refused(cause):
    graph = pylibcugraphops.make_csc([0, 1, 1, 3], [0, 1, 2])

    def call(y=None, x=None, graph=graph, op=AggOp.Sum):
        y = np.zeros((3, 1)) if y is None else y
        operators.agg_simple_n2n_fwd(y, np.ones((3, 1)) if x is None else x, graph, op)

    call()
    with pytest.raises((TypeError, ValueError, IndexError), match="expected"):
        REFUSED[cause](call)


X, HALF, Y = np.ones((3, 2)), np.ones((3, 2), np.float32), np.zeros((3, 2))
ONE, BOTH = np.zeros(3), np.zeros((3, 4))
NAMED = [
    ("agg_dmpnn_e2e_fwd", (Y, X), ([0, 1, 5],), IndexError, "rev_edge_ids: expected indices"),
    ("agg_dmpnn_e2e_bwd", (Y, X), (None,), TypeError, "rev_edge_ids: expected row numbers"),
    ("agg_weighted_n2n_fwd", (Y, X, np.ones(2)), (), ValueError, "edge_weight: expected shape"),
    ("agg_weighted_n2n_fwd", (Y, X, HALF[:, 0]), (), TypeError, "edge_weight: .* input_embedding"),
    ("agg_weighted_n2n_bwd", (Y, ONE, HALF, X[:, 0], X), (), TypeError, "grad_output: expected"),
    ("agg_weighted_n2n_bwd", (Y, Y[:, 0], X, X[:, 0], X), (), ValueError, "grad_edge_weight: .*ow"),
    (
        "agg_weighted_n2n_fwd",
        (Y, X, X[:, 0]),
        (AggOp.Mean, None, Y[:, 1]),
        ValueError,
        "node_degree: expected memory of its own, got some of output_embedding",
    ),
    (
        "agg_simple_n2n_e2n_fwd",
        (BOTH, X, HALF),
        (),
        TypeError,
        "input_edge_embedding: expected float64 like input_node_embedding, got float32",
    ),
    ("agg_simple_n2n_e2n_bwd", (Y, HALF, X), (), TypeError, "grad_input_edge: .* like grad_output"),
    ("agg_simple_n2n_e2n_bwd", (Y, Y, BOTH), (), ValueError, "grad_input_edge: expected memory"),
    ("agg_simple_n2n_fwd", (Y, X), (AggOp.Max, Y), TypeError, "output_extrema_location: expected"),
    ("update_efeat_e2e_sum_fwd", (Y, X, BOTH, None), (), ValueError, "input_src_node.* 2 columns"),
    ("update_efeat_e2e_sum_fwd", (Y, X, None, HALF), (), TypeError, "input_dst_node.* float64 lik"),
    ("update_efeat_e2e_concat_fwd", (Y, None, None, None), (), TypeError, "expected an input emb"),
]


@pytest.mark.parametrize(("name", "before", "after", "error", "message"), NAMED)
def test_refused_in_names_of_the_call(name, before, after, error, message):
    """Arguments are refused by the names of the call, and no output is written."""
    graph = pylibcugraphops.make_csc([0, 1, 1, 3], [0, 1, 2])
    with pytest.raises(error, match=f"^{name}: {message}"):
        getattr(operators, name)(*before, graph, *after)
    assert not Y.any()
    assert not BOTH.any()


def test_refused_locations():
    graph = pylibcugraphops.make_csc([0, 1, 1, 3], [0, 1, 2])
    gx, gy = np.zeros((3, 1)), np.ones((3, 1))
    operators.agg_simple_n2n_bwd(gx, gy, graph, AggOp.Max, np.array([[0], [-1], [2]]))
    assert gx.ravel().tolist() == [1, 0, 1]
    for wrong in [[0], [0], [2]], [[0], [-1], [3]], [[1], [-1], [2]], [[0], [-1], [-1]]:
        with pytest.raises(ValueError, match="expected entries of each destination"):
            operators.agg_simple_n2n_bwd(gx, gy, graph, AggOp.Max, np.array(wrong))
    with pytest.raises(TypeError, match="expected what the forward call wrote"):
        operators.agg_simple_n2n_bwd(gx, gy, graph, AggOp.Min)


@pytest.mark.parametrize(
    ("reverse", "message"),
    [
        ([1, 2, 0, -1], "to have that edge as its reverse, got 1 for 0 and 2 for 1"),
        ([3, -1, -1, 0], "to run from its destination to its source, got 3 for 0"),
        ([-1, 1, -1, -1], "to run from its destination to its source, got 1 for 1"),
    ],
)
def test_reverses_that_are_none(reverse, message):
    graph, h = pyops.Graph([0, 1, 2, 1], [1, 0, 1, 2]), np.ones((4, 2))
    pyops.edge_to_edge(graph, h, exclude="image", reverse=[1, 0, 3, 2])
    with pytest.raises(ValueError, match=f"^edge_to_edge: reverse: expected .* {message}"):
        pyops.edge_to_edge(graph, h, exclude="image", reverse=reverse)
