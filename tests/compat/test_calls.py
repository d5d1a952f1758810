"""Every low-level call of pylibcugraphops refuses invalid arguments by their names.

Most tests run over the same table of arguments, so they are one file.
"""

import inspect

import numpy as np
import pytest

from pyops.compat.pylibcugraphops import (
    bipartite_csc_hg_int32,
    bipartite_csc_int32,
    bipartite_csc_int64,
    make_bipartite_csc,
    make_bipartite_csc_hg,
    make_csc,
    make_csc_hg,
    operators,
)

from ..reference.scores import softmax
from ..support.compare import assert_close, assert_same
from ..support.programs import run
from .calls import CASES, CSC, DIM, EDGES, HEADS, KINDS, NODES, ROWS, TYPES, draw


def arguments(case):
    """Return all arguments of a case on the host, outputs included."""
    outs = {name: np.full(shape, -7, kind) for name, (shape, kind) in case.outs.items()}
    return outs | {name: case.moved(lambda array: array, a) for name, a in case.given.items()}


def fullest(cases):
    """Return, for each call, the case with most arguments."""
    found = {}
    for case in cases:
        count = sum(value is not None for value in (*case.outs.values(), *case.given.values()))
        most, _ = found.get(case.call, (0, None))
        if count > most:
            found[case.call] = count, case
    return [case for _, case in found.values()]


EVERY = [
    pytest.param(case, name, parameter, id=f"{case.call.__name__}-{name}")
    for case in fullest(CASES)
    for name, parameter in inspect.signature(case.call).parameters.items()
]
every_argument = pytest.mark.parametrize(("case", "name", "parameter"), EVERY)


@every_argument
def test_what_is_no_argument(case, name, parameter):
    given = arguments(case)
    wrong = ["banana", -1, object(), *[True] * (parameter.annotation != "bool")]
    for value in wrong:
        with pytest.raises((TypeError, ValueError)) as error:
            case.call(**{**given, name: value})
        assert str(error.value).startswith(f"{case.call.__name__}: {name}: expected")


def may_be_none(case, name, parameter):
    """Return whether an argument may be None, by the signature or, for attention, the docstring."""
    if parameter.annotation is inspect.Parameter.empty:
        left = name.startswith("grad_") and name != "grad_output_embedding"
        return left or name in ("softmax_scores", "activation_scores", "score_bias")
    return parameter.default is None or "None" in parameter.annotation


@every_argument
def test_none(case, name, parameter):
    """None is an unwanted output or an optional input, never zeros."""
    given = arguments(case)
    if not may_be_none(case, name, parameter):
        with pytest.raises((TypeError, ValueError), match=f"^{case.call.__name__}: {name}: expect"):
            case.call(**{**given, name: None})
    elif name in case.outs:
        case.call(**given)
        others = {n: np.full_like(given[n], -7) for n in case.outs if n != name}
        case.call(**{**given, **others, name: None})
        assert_same(others.values(), [given[n] for n in others])


FLOATS = [
    pytest.param(case, name, id=f"{case}-{name}")
    for case in CASES
    for name, array in arguments(case).items()
    if isinstance(array, np.ndarray) and array.dtype.kind == "f"
]
FLOATS = [p for p in FLOATS if sum(other.values[0] is p.values[0] for other in FLOATS) > 1]


@pytest.mark.parametrize(("case", "name"), FLOATS)
def test_precisions_are_not_mixed(case, name):
    given = arguments(case)
    with pytest.raises(TypeError, match=f"^{case.call.__name__}: .*: expected float.*, got float"):
        case.call(**{**given, name: given[name].astype(np.float32)})


@pytest.mark.parametrize(
    "change", [lambda a: a[1:], lambda a: a[..., None], lambda a: np.array(0.5)]
)
@pytest.mark.parametrize(("case", "name"), FLOATS)
def test_shapes_are_refused_by_arguments_of_the_call(case, name, change):
    """Arguments are refused by the names of the call, not by those of the operators within."""
    given = arguments(case)
    names = "|".join(inspect.signature(case.call).parameters)
    with pytest.raises(ValueError, match=f"^{case.call.__name__}: ({names}): expected") as error:
        case.call(**{**given, name: change(given[name])})
    if name == "edge_weight":
        assert str(error.value).startswith(f"{case.call.__name__}: {name}: ")


@pytest.mark.parametrize("operation", operators.AggOp)
@pytest.mark.parametrize("name", ["output_embedding", "node_degree"])
def test_what_the_forward_call_left_is_checked(name, operation):
    for call, width in (
        (operators.agg_weighted_n2n_bwd, 5),
        (operators.agg_concat_weighted_n2n_bwd, 10),
    ):
        (case,) = (c for c in CASES if c.call is call and c.about == operation.name)
        shape = (NODES, width) if name == "output_embedding" else (NODES,)
        given = arguments(case)
        call(**given, **{name: np.ones(shape)})
        for wrong in np.ones(shape, np.float32), np.ones((NODES, 3)):
            with pytest.raises(
                (TypeError, ValueError), match=f"^{call.__name__}: {name}: expected"
            ):
                call(**given, **{name: wrong})


WIDTHS = [some for some in EVERY if some.values[2].annotation == "int"]
WIDTHS = [some for some in WIDTHS if some.values[1] in some.values[0].given]


@pytest.mark.parametrize(("case", "name", "parameter"), WIDTHS)
def test_widths_are_those_of_the_arrays(case, name, parameter):
    given = arguments(case)
    with pytest.raises(ValueError, match=f"^{case.call.__name__}: .*expected"):
        case.call(**{**given, name: given[name] + 1})


def scores_of(graph, arrays, bias):
    """Return scores, weights and results of dot-product attention, head by head."""
    query, key, value, edge = arrays
    src, dst, ids = graph.src, graph.dst, graph.edge_ids
    heads = [a.reshape(len(a), HEADS, -1) for a in (query[dst], key[src] + edge[ids])]
    logits = (heads[0] * heads[1]).sum(2) / np.sqrt(DIM // HEADS) + bias[ids]
    alpha = softmax(graph, logits)
    y = np.zeros((graph.num_dst, HEADS, DIM // HEADS))
    np.add.at(y, dst, alpha[:, :, None] * (value[src] + edge[ids]).reshape(EDGES, HEADS, -1))
    return logits, alpha, y


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("efeat", [True, False])
def test_bias_of_scores(efeat, concat):
    holder = make_bipartite_csc(*CSC, NODES + 2, np.random.default_rng(0).permutation(EDGES))
    graph, params = holder.graph, operators.mha_params(HEADS, concat)
    key, query, value = draw((NODES + 2, DIM)), draw((NODES, DIM)), draw((NODES + 2, DIM))
    edge, bias = draw((EDGES, DIM)) * efeat, draw((EDGES, HEADS))
    inputs = [key, query, value] + [edge] * efeat
    forward, backward = (
        getattr(operators, f"mha_simple_n2n_{'efeat_' if efeat else ''}{phase}")
        for phase in ("fwd", "bwd")
    )

    def run(*inputs, bias):
        y = np.full((NODES, DIM if concat else DIM // HEADS), np.nan)
        scores = np.full((2, HEADS, EDGES), np.nan)
        forward(y, scores, *inputs, holder, params, score_bias=bias)
        return y, scores

    logits, alpha, expected = scores_of(graph, (query, key, value, edge), bias)
    expected = expected.reshape(NODES, -1) if concat else expected.mean(1)
    y, scores = run(*inputs, bias=bias)
    assert_close([y, scores[0].T, scores[1].T], [expected, logits, alpha], 1e-13)
    gy = draw(y.shape)
    outs = [np.full_like(a, np.nan) for a in (*inputs, bias)]
    backward(
        *outs[:-1], None, gy, *inputs, None, holder, params, score_bias=bias,
        grad_score_bias=outs[-1],
    )  # fmt: skip
    moves = [draw(a.shape) for a in outs]
    ends = []
    for step in (1e-6, -1e-6):
        moved = [a + step * m for a, m in zip((*inputs, bias), moves, strict=True)]
        ends.append((gy * run(*moved[:-1], bias=moved[-1])[0]).sum())
    slope = sum((g * m).sum() for g, m in zip(outs, moves, strict=True))
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def test_refused_biases_of_scores():
    case = next(c for c in fullest(CASES) if c.call is operators.mha_simple_n2n_efeat_bwd)
    for change, text in (
        ({"score_bias": draw((EDGES, HEADS + 1))}, r"score_bias: expected shape \(40, 2\), got"),
        (
            {"score_bias": draw((EDGES, HEADS)).astype("f")},
            "score_bias: expected float64 like query_e",
        ),
        ({"score_bias": None}, "score_bias: expected a NumPy array, got None"),
        ({"grad_score_bias": draw((1, 2))}, "grad_score_bias: expected shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{case.call.__name__}: {text}"):
            case.call(**{**arguments(case), **change})


PRECISIONS = {
    "fwd": "bf16_fp32 fp16_fp32 fp32_fp32",
    "bwd": "bf16_bf16_bf16_fp32 bf16_bf16_fp32_fp32 bf16_fp32_fp32_fp32 fp32_fp32_fp32_fp32 "
    "fp16_fp16_fp16_fp32 fp16_fp16_fp32_fp32 fp16_fp32_fp32_fp32",
}


@pytest.mark.parametrize("phase", PRECISIONS)
@pytest.mark.parametrize("kind", ["", "efeat_"])
def test_names_of_precisions(kind, phase):
    """All precision names are known, and each takes features of its type."""
    plain = f"mha_gat_n2n_{kind}{phase}"
    found = {name for name in vars(operators) if name.startswith(f"{plain}_")}
    assert found == {f"{plain}_{precision}" for precision in PRECISIONS[phase].split()}
    call = getattr(operators, plain)
    for name in found:
        named = getattr(operators, name)
        if "16" not in name:
            assert named is call
            continue
        assert inspect.signature(named) == inspect.signature(call)
        kind = "bfloat16" if "bf16" in name else "float16"
        features = np.ones((2, 2), np.float32)
        text = f"^{name}: src_node_embedding: expected {kind}, got float32"
        given = dict.fromkeys(inspect.signature(named).parameters, features) | {"stream_id": 0}
        given |= {"graph": make_bipartite_csc(*CSC, NODES), "params": operators.mha_params(1)}
        with pytest.raises(TypeError, match=text):
            named(**given)


def test_bipartite_graphs_with_types():
    """The number of sources is inferred from the entries unless a larger one is given."""
    offsets, indices = (np.asarray(a, np.int32) for a in CSC)
    graph = make_bipartite_csc_hg(offsets, indices, 1, TYPES, None, KINDS)
    assert isinstance(graph, bipartite_csc_hg_int32)
    assert graph.n_src_nodes == indices.max() + 1
    types = np.zeros(NODES + 2, int)
    wide = make_bipartite_csc_hg(*CSC, 1, TYPES, types, KINDS, n_src_nodes=NODES + 2)
    assert (wide.n_src_nodes, wide.n_dst_nodes, wide.n_edge_types) == (NODES + 2, NODES, TYPES)
    empty = make_bipartite_csc_hg([0], [], 1, 1, None, [])
    assert (empty.n_src_nodes, empty.n_dst_nodes) == (0, 0)
    few, x = make_bipartite_csc_hg([0, 1, 1], [0], 1, 1, None, [0]), np.ones((1, 2))
    text = "^agg_hg_basis_n2n_post_fwd: concat_own: expected at least 2 sources"
    with pytest.raises(ValueError, match=text):
        operators.agg_hg_basis_n2n_post_fwd(np.ones((2, 4)), x, None, few, True)


MAKERS = make_csc, make_bipartite_csc, make_csc_hg, make_bipartite_csc_hg
GIVEN = {"offsets": CSC[0], "indices": CSC[1], "map_csc_to_coo": ROWS, "n_src_nodes": NODES}
GIVEN |= {"n_node_types": 1, "n_edge_types": TYPES}
GIVEN |= {"node_types": np.zeros(NODES, int), "edge_types": KINDS}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        *(({name: None}, TypeError, f"{name}: expected") for name in GIVEN),
        ({"offsets": [0, 1]}, ValueError, "offsets: expected the first to be 0 and the last"),
        ({"offsets": [-1, EDGES]}, ValueError, "offsets: expected the first to be 0"),
        ({"indices": CSC[1] + NODES}, IndexError, "indices: expected indices from 0 to n_src_node"),
        ({"indices": CSC[1].astype("i4")}, TypeError, "indices: expected int64 like offsets, got"),
        ({"map_csc_to_coo": ROWS[1:]}, ValueError, "map_csc_to_coo: expected le.* got 39"),
        ({"map_csc_to_coo": ROWS - 1}, IndexError, "map_csc_to_coo: expected indices from 0 to"),
        ({"n_src_nodes": "x"}, TypeError, "n_src_nodes: expected an integer, got 'x'"),
        ({"n_src_nodes": 2.0}, TypeError, r"n_src_nodes: expected an integer, got 2\.0"),
        ({"n_src_nodes": -1}, ValueError, "n_src_nodes: expected at least 0, got -1"),
        ({"n_src_nodes": 2**31}, OverflowError, "n_src_nodes: expected at most"),
    ],
)
def test_refused_graphs(make, change, error, message):
    """Graph functions refuse arguments by their own names."""
    parameters = inspect.signature(make).parameters
    given = {name: value for name, value in GIVEN.items() if name in parameters}
    graph = make(**given)
    ((name, value),) = change.items()
    if name not in parameters:
        pytest.skip("no argument of it")
    if value is None and (parameters[name].default is None or name == "node_types"):
        assert make(**{**given, **change}).n_indices == graph.n_indices
        return
    with pytest.raises(error, match=f"^{make.__name__}: {message}"):
        make(**{**given, **change})


@pytest.mark.parametrize("kind", ["i4", "i8"])
def test_byte_orders(kind):
    """Arrays may have any byte order; the graph has the integer type of its arrays."""
    expected = bipartite_csc_int32 if kind == "i4" else bipartite_csc_int64
    for orders in "==", ">>", "<<", "<>", "><":
        arrays = (a.astype(order + kind) for a, order in zip(CSC, orders, strict=True))
        graph = make_bipartite_csc(*arrays, NODES)
        assert type(graph) is expected
        np.testing.assert_array_equal(graph.graph.src, CSC[1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_node_types": 0}, ValueError, "n_node_types: expected an integer from 1"),
        ({"n_node_types": "banana"}, TypeError, "n_node_types: expected a positive integer"),
        ({"n_edge_types": 0}, ValueError, "n_edge_types: expected an integer from 1"),
        ({"n_edge_types": 2.0}, TypeError, "n_edge_types: expected a positive integer"),
        ({"node_types": "banana"}, TypeError, "node_types: expected"),
        ({"node_types": [0]}, ValueError, "node_types: expected length .*, got 1"),
        ({"node_types": [5] * NODES}, IndexError, "node_types: expected indices from 0 to n_node"),
        ({"edge_types": [0]}, ValueError, "edge_types: expected length len.indices.=40, got 1"),
        ({"edge_types": None}, TypeError, "edge_types: expected"),
        ({"edge_types": KINDS - 1}, IndexError, "edge_types: expected indices from 0 to n_edge_t"),
    ],
)
@pytest.mark.parametrize("make", [make_csc_hg, make_bipartite_csc_hg])
def test_refused_types(make, change, error, message):
    given = {"offsets": CSC[0], "indices": CSC[1], "n_node_types": 1, "n_edge_types": TYPES}
    given |= {"node_types": np.zeros(NODES, int), "edge_types": KINDS}
    make(**given)
    with pytest.raises(error, match=f"^{make.__name__}: {message}"):
        make(**{**given, **change})


def test_installed_name():
    """Modules are imported once, under both names."""
    run("""
        import pyops.compat.pylibcugraphops as ours
        ours.install()
        ours.install()
        import pylibcugraphops
        from pylibcugraphops import make_csc
        import pylibcugraphops.operators as operators
        assert pylibcugraphops is ours
        assert operators is ours.operators
        assert ours.__spec__.name == ours.__name__ == "pyops.compat.pylibcugraphops"
        try:
            import pylibcugraphops.nothing
        except ModuleNotFoundError as error:
            assert error.name == "pylibcugraphops.nothing"
        else:
            raise AssertionError
    """)


def test_name_that_is_taken(tmp_path):
    (tmp_path / "pylibcugraphops.py").touch()
    said = run(
        """
        import pyops.compat.pylibcugraphops as ours
        try:
            ours.install()
        except ImportError as error:
            print(error)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert "install: expected no other pylibcugraphops, got one that is installed" in said
