"""Softmax over neighbours in hard cases, and properties of attention operators.

Most tests run over the same operators, those with a softmax, so this is one file.
"""

import numpy as np
import pytest

import pyops

from ..reference import gat as reference_gat
from ..reference import gat_v2, transformer_conv
from ..support.cases import OPERATORS, PHASES, SOFTMAX, representative, variants
from ..support.compare import assert_close, assert_same
from ..support.graphs import GRAPHS, drawn

WEIGHTED = sorted(SOFTMAX - {"segment_softmax"})
every_softmax = pytest.mark.parametrize("name", sorted(SOFTMAX))
every_weighted = pytest.mark.parametrize("name", WEIGHTED)
every_weighted_variant = pytest.mark.parametrize(
    "case", [case for name in WEIGHTED for case in variants(OPERATORS[name])], ids=str
)
REFERENCES = {"gat": reference_gat, "gat_v2": gat_v2, "transformer_conv": transformer_conv}


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_of_ten_thousand(dtype, scale):
    """The largest logit gets weight 1, without overflow."""
    graph = pyops.Graph([0, 1, 2], [0, 0, 0], 3, 1)
    x = np.array([[1.0], [3], [2]], dtype) * dtype(scale)
    attention = np.array([1, 0], dtype)
    y = pyops.gat(graph, x, np.zeros((1, 1), dtype), attention, heads=1, activation="identity")
    assert y.tolist() == [[3e4]] if scale > 0 else [[-1e4]]
    inputs, gy = (graph, x, np.zeros((1, 1), dtype), attention), np.ones((1, 1), dtype)
    options = {"heads": 1, "activation": "identity"}
    gradients = pyops.gat.backward(*inputs, gy, **options)
    second = pyops.gat.double_backward(*inputs, gy, x, None, attention, **options)
    for result in (*gradients, *second):
        assert result is None or np.isfinite(result).all()


@every_weighted
@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_single_entries_have_no_gradient(name, concat, dtype):
    """Passes over destinations and sources see the same numbers, also of averaged heads."""
    rng = np.random.default_rng(0)
    graph = pyops.Graph(np.arange(20), np.roll(np.arange(20), 1))
    heads, width = 3, 5
    count = {"gat": 2 * heads * width, "gat_v2": heads * width}.get(name)
    shapes = [(20, heads * width)] * 2 + [count or (20, heads * width)]
    inputs = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    gy = rng.standard_normal((20, heads * width if concat else width)).astype(dtype)
    named = dict(zip(OPERATORS[name].signature.inputs, inputs, strict=False))
    found = OPERATORS[name].backward(graph, **named, gy=gy, heads=heads, concat=concat)
    gradients = dict(zip(OPERATORS[name].signature.inputs, found, strict=True))
    scores = ("query", "key") if name == "transformer_conv" else ("x_dst", "attention")
    assert not any(gradients[n].any() for n in scores)


@every_weighted
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_the_winner_takes_all_the_losers_move_nothing(name, heads, dtype):
    """Zero weights are exact: masks and large values leave no residual of zero differences."""
    rng = np.random.default_rng(0)
    graph = pyops.Graph(np.tile(np.arange(10), 50), np.repeat(np.arange(50), 10), 10, 50)
    op, width = OPERATORS[name], 16

    def normal(*shape, scale=1.0):
        return (scale * rng.standard_normal(shape)).astype(dtype)

    own, others = normal(50, heads * width), normal(10, heads * width)
    mask = rng.uniform(0.5, 1.5, (graph.num_edges, heads)).astype(dtype)
    if name == "transformer_conv":
        inputs, at = (1e4 * own, others, normal(10, heads * width)), 0
    else:
        blocks = 2 if name == "gat" else 1
        inputs, at = (others, own, normal(blocks * heads * width, scale=1e4)), 1
    alpha = op(graph, *inputs, None, mask, heads=heads, return_attention=True)[1]
    takes_all = np.ones(graph.num_dst, bool)
    takes_all[graph.dst[((alpha != 0) & (alpha != 1)).any(1)]] = False
    assert takes_all.sum() > 10
    gy = normal(50, heads * width)
    tangents = [*(normal(*array.shape) for array in inputs), None, None]
    first = op.backward(graph, *inputs, None, mask, gy, heads=heads)
    second = op.double_backward(graph, *inputs, None, mask, gy, *tangents, heads=heads)
    for result in first, second:
        assert not result[at][takes_all].any()


def test_undefined_weights_reach_no_node_without_entries():
    graph, x = pyops.Graph([0, 1], [0, 0], 3, 3), np.ones((3, 4))
    of_src, of_dst, *_ = pyops.gat_v2.backward(graph, x, x, np.full(4, np.nan), x, heads=1)
    assert not of_src[2].any()
    assert not of_dst[1:].any()


@every_softmax
@pytest.mark.parametrize("phase", PHASES)
def test_extremes_of_one_row_leave_the_others(name, phase):
    """Results are bitwise the same beside a row of huge, infinite or undefined scores."""
    problem = representative(name).problem(
        pyops.Graph([0, 1, 2, 3, 4, 2], [0, 0, 1, 1, 2, 2], 5, 3)
    )
    graph, expected = problem.graph, problem.run(phase)
    per_row = [i for i, rows in enumerate(problem.result_rows(phase)) if rows == "num_dst"]
    for value in 1e30, np.inf, np.nan:
        if "logits" not in problem.arrays:
            names = [n for n in problem.names(phase) if problem.rows(n) == "num_src"]
            changed = {n: problem.arrays[n].copy() for n in names}
            for array in changed.values():
                array[1] = value
        else:
            changed = {"logits": problem.arrays["logits"].copy()}
            changed["logits"][graph.src == 1] = value
        results = problem.having(**changed).run(phase)
        for i in per_row:
            assert results[i][1:].tobytes() == expected[i][1:].tobytes()


@every_weighted
def test_sparsity_of_the_jacobian(name):
    """A source affects only the destinations of its entries, and a destination only itself."""
    problem = representative(name).problem(drawn(6, 9, 20))
    graph, op = problem.graph, problem.op
    linked = np.zeros((graph.num_dst, graph.num_src), bool)
    linked[graph.dst, graph.src] = True
    for rows in "num_src", "num_dst":
        names = [n for n in op.signature.inputs if problem.rows(n) == rows]
        reached = linked if rows == "num_src" else np.diag(linked.any(1))
        for node in range(getattr(graph, rows)):
            tangents = {"h" + n: np.zeros_like(problem.arrays[n]) for n in names}
            for tangent in tangents.values():
                tangent[node] = 1
            none = {"h" + n: None for n in op.signature.inputs}
            (dy,) = problem.having(**none).having(**tangents).run("jvp")
            moved = abs(dy).reshape(graph.num_dst, -1).max(1) > 0
            assert not (moved & ~reached[:, node]).any()
            if rows == "num_src":
                assert (moved == reached[:, node]).all()


@every_softmax
@pytest.mark.parametrize("sizes", [(3, 11), (11, 3), (0, 4), (4, 0), (0, 0)])
def test_isolated_nodes_and_no_edges(name, sizes):
    problem = representative(name).problem(pyops.Graph([], [], *sizes))
    for phase in PHASES:
        for result in problem.run(phase):
            assert not result.any()


@every_weighted
def test_isolated_destinations_and_sources(name):
    problem = representative(name).problem(pyops.Graph([1, 1, 3], [2, 2, 0], 5, 4))
    (y,) = problem.run("forward")
    assert not y[[1, 3]].any()
    assert y[[0, 2]].all()
    for rows, gradient in zip(
        problem.result_rows("backward"), problem.run("backward"), strict=True
    ):
        if rows == "num_src":
            assert not gradient[[0, 2, 4]].any()
        if rows == "num_dst":
            assert not gradient[[1, 3]].any()


@every_weighted
def test_self_loops_and_duplicates_are_ordinary(name):
    """Duplicating every entry changes no softmax average."""
    src, dst = [0, 1, 1, 2], [0, 1, 0, 2]
    problem = representative(name).problem(pyops.Graph(src, dst, 3, 3))
    twice = pyops.Graph(src * 2, dst * 2, 3, 3)
    doubled = {
        n: np.concatenate([a, a])
        for n, a in problem.arrays.items()
        if a is not None and problem.rows(n) == "num_edges"
    }
    again = type(problem)(problem.op, twice, problem.options, {**problem.arrays, **doubled})
    for phase in "forward", "jvp":
        assert_close(again.run(phase), problem.run(phase), 1e-14)


@every_weighted_variant
def test_attention_that_is_returned(case):
    problem = case.problem()
    (y, alpha), arguments = problem.run("forward", return_attention=True), problem.inputs
    assert_same([y], problem.run("forward"))
    expected = REFERENCES[case.op].attention_of(problem.graph, *arguments, **problem.options)
    assert_close([alpha], [expected], 1e-14)


def test_attention_of_long_rows_sums_to_one():
    rng = np.random.default_rng(0)
    graph = pyops.Graph(rng.integers(0, 6, 9000), np.repeat([2, 0, 1], 3000), 6, 3)
    x, y, attention = (rng.standard_normal(s) for s in ((6, 8, 2), (3, 8, 2), 32))
    _, alpha = pyops.gat(graph, x, y, attention, heads=8, return_attention=True)
    sums = np.zeros((3, 8))
    np.add.at(sums, graph.dst, alpha)
    np.testing.assert_allclose(sums, 1, rtol=1e-13)


def test_whether_attention_is_returned_is_checked():
    problem = representative("gat").problem()
    with pytest.raises(TypeError, match="gat: return_attention: expected True or False, got 1"):
        problem.run("forward", return_attention=1)
    with pytest.raises(TypeError, match="unexpected option 'return_attention'"):
        representative("gno_conv").problem().run("forward", return_attention=True)


@pytest.mark.parametrize("phase", PHASES)
@every_weighted_variant
def test_heads_side_by_side(case, phase):
    """Heads may be flattened, [n, heads * width]; gradients have the same layout and values."""
    problem = case.problem()
    flat = problem.map(lambda a: a.reshape(len(a), -1) if a.ndim == 3 else a)
    for got, expected in zip(flat.run(phase), problem.run(phase), strict=True):
        if got is not None:
            assert got.ndim < 3
            assert_same([got.reshape(expected.shape)], [expected])


@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-4), ("f8", 1e-12)])
@pytest.mark.parametrize(
    ("heads", "width"),
    [(2, 5), (2, 3), (3, 7), (3, 23), (3, 31), (5, 13), (8, 7), (9, 6), (15, 11)],
)
@pytest.mark.parametrize("graph", ["shared edges", "long rows", "hubs", "thousands of rows"])
def test_heads_know_nothing_of_each_other(graph, heads, width, dtype, tolerance):
    """A single head, computed by other loops, equals the same head among several."""
    whole = (case for case in variants(OPERATORS["gat"]) if not case.absent)
    case = next(case for case in whole if dict(case.choices)["concat"])
    problem = case.problem(GRAPHS[graph](), heads=heads, width=width, edge_width=3)
    problem = problem.map(lambda a: a.astype(dtype))

    def of_head(k, name, array):
        if array is None:
            return None
        if name.endswith("attention"):
            blocks = np.split(array, [width * heads, 2 * width * heads])
            return np.concatenate([block.reshape(heads, -1)[k] for block in blocks])
        whole = array.reshape(len(array), heads, -1)[:, k : k + 1]
        return whole if array.ndim == 3 else whole.reshape(len(array), -1)

    results = {"backward": [*problem.op.signature.inputs], "forward": ["y"], "jvp": ["dgy"]}
    results["double_backward"] = [*results["backward"], "dgy"]
    for phase in PHASES:
        together = problem.run(phase)
        for k in {0, heads - 1}:
            arrays = {name: of_head(k, name, a) for name, a in problem.arrays.items()}
            alone = type(problem)(
                problem.op, problem.graph, {**problem.options, "heads": 1}, arrays
            )
            expected = [of_head(k, *r) for r in zip(results[phase], together, strict=True)]
            assert_close(alone.run(phase), expected, tolerance)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("graph", ["shared edges", "long rows", "hubs", "thousands of rows"])
def test_what_is_saved_is_what_derivatives_would_work_out(graph, heads, dtype):
    whole = (case for case in variants(OPERATORS["gat"]) if not case.absent)
    for case in [case for case in whole if dict(case.choices)["activation"] in ("tanh", "elu")]:
        problem = case.problem(GRAPHS[graph](), heads=heads, width=5, edge_width=3)
        problem = problem.map(lambda a: a.astype(dtype))
        arguments, options = problem.arguments("forward"), problem.options
        pyops.set_num_threads(1)
        y, saved = problem.op.forward(*arguments, **options)
        assert_same([y], problem.run("forward"))
        pyops.set_num_threads(3)
        out, expected = np.ones_like(y), np.ones_like(y)
        _, again = problem.op.forward(*arguments, out=out, accumulate=True, **options)
        problem.op(*arguments, out=expected, accumulate=True, **options)
        assert_same([out, *again], [expected, *saved])
        for phase in ("backward", "double_backward", "jvp"):
            assert_same(problem.run(phase, saved=saved), problem.run(phase))
        assert len(saved[0]) == problem.graph.num_src + 3 * problem.graph.num_dst


def test_what_is_saved_is_read():
    problem = representative("gat").problem()
    _, (kept,) = problem.op.forward(*problem.arguments("forward"), **problem.options)
    for phase in ("backward", "double_backward", "jvp"):
        changed = problem.run(phase, saved=(kept + 0.5,))
        same = [np.array_equal(*pair) for pair in zip(changed, problem.run(phase), strict=True)]
        assert not all(same)


def test_attention_beside_what_is_saved():
    problem = representative("gat").problem()
    arguments, options = problem.arguments("forward"), problem.options
    (y, alpha), saved = problem.op.forward(*arguments, return_attention=True, **options)
    expected = problem.op(*arguments, return_attention=True, **options)
    assert_same([y, alpha], expected)
    assert_same(problem.run("backward", saved=saved), problem.run("backward"))


@pytest.mark.parametrize("slope", [0, 0.5, -1.5, np.float32(0.25)])
def test_slopes(slope):
    problem = representative("gat").problem()
    problem = type(problem)(
        problem.op,
        problem.graph,
        {**problem.options, "activation": "leaky_relu", "negative_slope": slope},
        problem.arrays,
    )
    expected = reference_gat.forward(problem.graph, *problem.inputs, **problem.options)
    assert_close(problem.run("forward"), [expected], 1e-13)


def test_score_of_zero_has_the_negative_slope():
    """Both alphas are 1/2, products 1 and 2: -1/4 and 1/4 by act(s), a fifth of it by s."""
    graph, x, y = pyops.Graph([0, 1], [0, 0], 2, 1), np.array([[1.0], [2.0]]), np.zeros((1, 1))
    _, _, gattention, _, _ = pyops.gat.backward(graph, x, y, np.zeros(2), np.ones((1, 1)), heads=1)
    np.testing.assert_allclose(gattention, [0.2 * (-0.25 + 0.5), 0])


def test_mask_drops_entries_after_the_softmax():
    graph = pyops.Graph([0, 1], [0, 0], 2, 1)
    x = np.array([[1.0], [10.0]])
    mask = np.array([[2.0], [0.0]])
    y = pyops.gat(graph, x, np.zeros((1, 1)), np.zeros(2), None, mask, heads=1)
    assert y.tolist() == [[1]]


def within_line(array, start):
    """Return an array that starts the given number of bytes after the start of a cache line."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    first = -memory.ctypes.data % 64 + start
    placed = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("start", [(16, 0), (0, 16), (16, 16)], ids=str)
def test_double_backward_wherever_rows_begin(start, accumulate):
    """A cotangent that is not cache-aligned may be packed where dx_dst will be written."""
    rng = np.random.default_rng(0)
    graph = drawn(30, 20, 400)
    heads, width = 4, 8
    x_src, x_dst, gy = (rng.standard_normal((n, heads * width)).astype("f4") for n in (30, 20, 20))
    attention = rng.standard_normal(2 * heads * width).astype("f4")
    inputs = x_src, x_dst, attention, None, None
    tangents = (*(rng.standard_normal(a.shape).astype("f4") for a in inputs[:3]), None, None)
    given = [rng.standard_normal(a.shape).astype("f4") for a in (*inputs[:3], gy)]

    def run(gy, dx_dst):
        dx_src, _, dattention, dgy = (a.copy() for a in given)
        out = [dx_src, dx_dst, dattention, None, None, dgy]
        cotangent = gy.copy()
        found = pyops.gat.double_backward(
            graph, *inputs, gy, *tangents, heads=heads, out=out, accumulate=accumulate
        )
        assert_same([gy], [cotangent])
        return found

    expected = run(within_line(gy, 0), within_line(given[1], 0))
    found = run(within_line(gy, start[0]), within_line(given[1], start[1]))
    assert_same(found, expected)
