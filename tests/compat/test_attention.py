"""Attention calls of pylibcugraphops.operators against the corresponding operators."""

import numpy as np
import pytest

import pyops
from pyops.compat.pylibcugraphops import (
    bipartite_csc_int32,
    bipartite_csc_int64,
    make_bipartite_csc,
    operators,
)

from ..reference import transformer_conv
from ..reference.scores import softmax
from ..support.compare import assert_close, assert_same

OFFSETS, INDICES = [0, 3, 3, 5, 9], [2, 0, 2, 5, 1, 4, 4, 3, 0]
HEADS, WIDTH = 3, 4
DIM = HEADS * WIDTH
ROWS = {"x_src": 6, "x_dst": 4, "query": 4, "key": 6, "value": 6, "edge_features": 9}
ACTIVATIONS = {"LeakyReLU": "leaky_relu", "Identity": "identity", "ReLU": "relu"}
ACTIVATIONS |= {"Sigmoid": "sigmoid", "Tanh": "tanh", "ELU": "elu"}
KINDS = ("gat", "gat_v2", "simple")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_edge = pytest.mark.parametrize("edges", [False, True], ids=["", "efeat"])


def graph_of(dtype=np.int64):
    return make_bipartite_csc(np.array(OFFSETS, dtype), np.array(INDICES, dtype), 6)


def problem(rng, kind, edges, dtype, concat=True):
    """Return the operator, its inputs by name, and the cotangent of its output."""
    op = {"simple": pyops.transformer_conv, "gat": pyops.gat, "gat_v2": pyops.gat_v2}[kind]
    names = [n for n in op.signature.inputs if n != "mask" and (edges or n != "edge_features")]
    blocks = {"gat": 3 if edges else 2}.get(kind, 1)
    shapes = {n: (blocks * DIM,) if n == "attention" else (ROWS[n], DIM) for n in names}
    arrays = {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}
    gy = rng.standard_normal((4, DIM if concat else WIDTH)).astype(dtype)
    return op, arrays, gy


def call_of(kind, edges, phase):
    return getattr(operators, f"mha_{kind}_n2n_{'efeat_' if edges else ''}{phase}")


def in_order(kind, arrays):
    """Return arguments in call order: key before query, edge features before weights."""
    order = ("x_src", "x_dst", "key", "query", "value", "edge_features", "attention")
    return [arrays[name] for name in order if name in arrays]


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_edge
@every_kind
def test_both_phases(rng, kind, edges, dtype, concat):
    op, arrays, gy = problem(rng, kind, edges, dtype, concat)
    graph, params = graph_of(), operators.mha_params(HEADS, concat)
    y, scores = np.full_like(gy, np.nan), np.full((2, HEADS, 9), np.nan, dtype)
    more = [np.full((9, DIM), np.nan, dtype)] if kind == "gat_v2" else []
    given = in_order(kind, arrays)
    call_of(kind, edges, "fwd")(y, scores, *more, *given, graph, params, 7)
    expected, alpha = op(
        graph.graph, *arrays.values(), heads=HEADS, concat=concat, return_attention=True
    )
    assert_same([y, scores[1].T], [expected, alpha])
    assert_close([softmax(graph.graph, scores[0].T)], [alpha], 1e-5)
    outs = {name: np.full_like(a, np.nan) for name, a in arrays.items()}
    scratch = np.empty_like(scores)
    workspace = [np.empty((4, arrays["attention"].size), dtype)] if kind != "simple" else []
    call_of(kind, edges, "bwd")(
        *in_order(kind, outs), scratch, gy, *given, scores, *more, graph, params, *workspace,
        stream_id=0,
    )  # fmt: skip
    results = op.backward(
        graph.graph, *arrays.values(), *[None] * (5 - len(arrays)), gy, heads=HEADS, concat=concat
    )
    assert_same(list(outs.values()), [g for g in results if g is not None])


@every_kind
def test_gradients_that_are_not_needed(rng, kind):
    op, arrays, gy = problem(rng, kind, False, np.float64)
    call, params = call_of(kind, False, "bwd"), operators.mha_params(HEADS)
    expected = op.backward(graph_of().graph, *arrays.values(), None, None, gy, heads=HEADS)
    scores = [None] * (2 if kind == "gat_v2" else 1)
    for name, gradient in zip(arrays, expected, strict=False):
        outs = {n: np.full_like(a, np.nan) if n == name else None for n, a in arrays.items()}
        given = in_order(kind, arrays)
        call(*in_order(kind, outs), None, gy, *given, *scores, graph_of(), params)
        assert_same([outs[name]], [gradient])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["gat", "gat_v2"])
def test_activations(rng, kind, activation):
    op, arrays, gy = problem(rng, kind, True, np.float64)
    params = operators.mha_params(HEADS, activation=activation, negative_slope=0.3)
    y, scores = np.empty_like(gy), np.empty((2, HEADS, 9))
    more = [np.empty((9, DIM))] if kind == "gat_v2" else []
    graph = graph_of(np.int32)
    call_of(kind, True, "fwd")(y, scores, *more, *in_order(kind, arrays), graph, params)
    options = {"heads": HEADS, "activation": ACTIVATIONS[activation], "negative_slope": 0.3}
    assert_same([y], [op(graph.graph, *arrays.values(), **options)])
    assert_close([softmax(graph.graph, scores[0].T)], [scores[1].T], 1e-13)


def test_scores_that_are_not_divided(rng):
    _, arrays, gy = problem(rng, "simple", False, np.float64)
    graph, params = graph_of(), operators.mha_params(HEADS, norm_by_dim=False)
    given = in_order("simple", arrays)
    y, scores = np.empty_like(gy), np.empty((2, HEADS, 9))
    operators.mha_simple_n2n_fwd(y, scores, *given, graph, params)
    scaled = [arrays["query"] * np.sqrt(WIDTH), arrays["key"], arrays["value"], None, None]
    assert_close([y], [transformer_conv.forward(graph.graph, *scaled, heads=HEADS)], 1e-13)
    outs = [np.empty_like(a) for a in given]
    operators.mha_simple_n2n_bwd(*outs, None, gy, *given, scores, graph, params)
    query, key, value, _, _ = transformer_conv.backward(graph.graph, *scaled, gy, heads=HEADS)
    assert_close(outs, [key, query * np.sqrt(WIDTH), value], 1e-13)


def test_names_of_precisions():
    assert operators.mha_gat_n2n_fwd_fp32_fp32 is operators.mha_gat_n2n_fwd
    assert operators.mha_gat_n2n_bwd_fp32_fp32_fp32_fp32 is operators.mha_gat_n2n_bwd
    assert repr(operators.mha_gat_n2n_fwd).endswith(
        "attention_weights, graph, params, stream_id=0)"
    )


@pytest.mark.parametrize("edges", [False, True])
def test_half_precision(rng, edges):
    """Calls for fp16 features give the results of float32, rounded where arrays are fp16."""
    _, arrays, gy = problem(rng, "gat", edges, np.float32)
    weights = arrays["attention"]
    half = {n: a if n == "attention" else a.astype(np.float16) for n, a in arrays.items()}
    wide = {n: a.astype(np.float32) for n, a in half.items()}
    kind, graph, params = "gat", graph_of(), operators.mha_params(HEADS)
    name = f"mha_gat_n2n_{'efeat_' * edges}"
    y, scores = np.full_like(gy, np.nan, np.float16), np.full((2, HEADS, 9), np.nan, np.float32)
    z, expected = np.empty_like(gy), np.empty_like(scores)
    getattr(operators, f"{name}fwd_fp16_fp32")(y, scores, *in_order(kind, half), graph, params)
    call_of(kind, edges, "fwd")(z, expected, *in_order(kind, wide), graph, params)
    assert_same([y, scores], [z.astype(np.float16), expected])
    gy = gy.astype(np.float16)
    outs = {n: np.full_like(a, np.nan) for n, a in half.items()}
    others = {n: np.full_like(a, np.nan) for n, a in wide.items()}
    last = scores, graph, params, None
    backward = getattr(operators, f"{name}bwd_fp16_fp16_fp32_fp32")
    backward(*in_order(kind, outs), None, gy, *in_order(kind, half), *last)
    call = call_of(kind, edges, "bwd")
    call(*in_order(kind, others), None, gy.astype(np.float32), *in_order(kind, wide), *last)
    assert outs["attention"].dtype == weights.dtype
    assert_same(outs.values(), [others[n].astype(a.dtype) for n, a in outs.items()])


def test_edge_rows_by_number(rng):
    """map_csc_to_coo gives the row of the edge features of each entry."""
    order = rng.permutation(9)
    mapped = make_bipartite_csc(OFFSETS, INDICES, 6, order)
    _, arrays, gy = problem(rng, "gat", True, np.float64)
    params, ys = operators.mha_params(HEADS), [np.empty_like(gy) for _ in range(2)]
    operators.mha_gat_n2n_efeat_fwd(ys[0], None, *in_order("gat", arrays), mapped, params)
    arrays["edge_features"] = arrays["edge_features"][order]
    operators.mha_gat_n2n_efeat_fwd(ys[1], None, *in_order("gat", arrays), graph_of(), params)
    assert_same(ys[:1], ys[1:])


def test_graphs():
    for dtype, kind in {np.int32: bipartite_csc_int32, np.int64: bipartite_csc_int64}.items():
        graph = graph_of(dtype)
        assert type(graph) is kind
        assert (graph.n_src_nodes, graph.n_dst_nodes, graph.n_indices) == (6, 4, 9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 3, 2, 9], INDICES, 6), ValueError, "offsets: expected no decrease"),
        (([1, 3, 9], INDICES, 6), ValueError, "offsets: expected the first to be 0"),
        (([0, 3, 8], INDICES, 6), ValueError, "offsets: expected .* last to be len"),
        ((OFFSETS, INDICES, 5), IndexError, "indices: expected indices from 0 to n_src_nodes-1=4"),
        ((np.int32(OFFSETS), np.int64(INDICES), 6), TypeError, "indices: expected int32 like"),
        ((OFFSETS, INDICES, 6, [0]), ValueError, "map_csc_to_coo: expected length"),
        (([0.0, 9.0], INDICES, 6), TypeError, "offsets: expected int32 or int64"),
    ],
)
def test_inconsistent_graphs(arguments, error, message):
    with pytest.raises(error, match=message):
        make_bipartite_csc(*arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"output_embedding": np.zeros((4, 3))}, ValueError, r"output_embedding: expected shape"),
        ({"output_embedding": None}, TypeError, "output_embedding: expected a NumPy array"),
        ({"softmax_scores": np.zeros((2, 9, 3))}, ValueError, "softmax_scores: expected shape"),
        ({"softmax_scores": np.zeros((2, 3, 9), "f")}, TypeError, "softmax_scores: .*float64"),
        ({"src_node_embedding": np.zeros((6, 11))}, ValueError, "src_node_.* a multiple of num_h"),
        ({"src_node_embedding": np.zeros(6)}, ValueError, "src_node_embedding: expected shape"),
        ({"src_node_embedding": [1.0]}, TypeError, "src_node_embedding: expected a NumPy array"),
        ({"dst_node_embedding": np.zeros((5, 12))}, ValueError, r"dst_.* shape \(4, 12\)"),
        ({"attention_weights": np.zeros(12)}, ValueError, r"attention_weights: expected .*\(24,"),
        ({"graph": pyops.Graph(INDICES, INDICES)}, TypeError, "graph: expected a graph of make_"),
        ({"params": 3}, TypeError, "params: expected mha_params"),
        ({"stream_id": "0"}, TypeError, "stream_id: expected"),
        ({"efeat": 1}, TypeError, "unexpected keyword argument 'efeat'"),
    ],
)
def test_refused(change, error, message):
    given = {
        "output_embedding": np.zeros((4, 12)),
        "softmax_scores": np.zeros((2, 3, 9)),
        "src_node_embedding": np.zeros((6, 12)),
        "dst_node_embedding": np.zeros((4, 12)),
        "attention_weights": np.zeros(24),
        "graph": graph_of(),
        "params": operators.mha_params(3),
    }
    with pytest.raises(error, match=f"^mha_gat_n2n_fwd: .*{message}"):
        operators.mha_gat_n2n_fwd(**{**given, **change})


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"num_heads": 0}, ValueError, "num_heads: expected an integer from 1"),
        ({"activation": "relu"}, ValueError, "activation: expected one of LeakyReLU, "),
        ({"activation": []}, TypeError, "activation: expected one of LeakyReLU, .*, got \\[\\]"),
        ({"activation": None}, TypeError, "activation: expected one of LeakyReLU, .*, got None"),
        ({"negative_slope": "0"}, TypeError, "negative_slope: expected a number"),
        ({"concat_heads": 1}, TypeError, "concat_heads: expected True or False"),
    ],
)
def test_parameters(keywords, error, message):
    with pytest.raises(error, match=f"^mha_params: {message}"):
        operators.mha_params(**keywords)
