"""Gradients of the Fortran API from plain arrays, against `backward`."""

import functools
import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest

import pyops
from pyops import partials
from pyops._call.partial import words_of

from ..support.cases import OPERATORS, VARIANTS
from ..support.graphs import GRAPHS


def packed(x):
    """Return the alternative form of an array: a packed block, or flattened heads."""
    return x.T.ravel() if x.ndim == 2 else x.reshape(len(x), x.shape[1] * x.shape[2])


def by_hand(problem, name, number, dtype=None, **keywords):
    """Return a gradient of a case by the procedure of the Fortran API."""
    op = problem.op
    inputs = problem.inputs
    forms = [i.forms[-1] for i in op.signature.inputs.values()]
    blocks = [
        x if x is None or len(i.forms) == 1 else packed(x)
        for i, x in zip(op.signature.inputs.values(), inputs, strict=True)
    ]
    declared = op.signature.options.values()
    chosen = [(o, problem.options[o.name]) for o in declared if o.choices]
    codes = [int(c) if o.kind is bool else 1 + o.choices.index(c) for o, c in chosen]
    free = [problem.options[o.name] for o in declared if o.is_size]
    if op.signature.has_graph:
        graph = problem.graph
        order = np.argsort(graph.dst, kind="stable")
        offsets = 1 + np.append(0, np.cumsum(graph.in_degrees()))
        indices = [*offsets, *free, *codes]
        pairs = np.stack([graph.src[order], graph.edge_ids[order]], axis=1) + 1
        more = indices, pairs
    else:
        known = {}
        for form, x in [pair for pair in zip(forms, blocks, strict=True) if pair[1] is not None]:
            for size, length in zip(form, x.shape, strict=True):
                if size.text.isidentifier():
                    known[size.text] = length
        shape = problem.arrays["gy"].shape
        known |= {s.text: n for s, n in zip(op.signature.output, shape, strict=True)}
        known |= {o.name: problem.options[o.name] for o in declared if o.is_size}
        if "modes" not in known:
            known["modes"] = min(inputs[-1].shape)
        indices = [known[n] for n in words_of(op.name) if n in known]
        more = ([*indices, *codes],)
    gy = problem.arrays["gy"]
    if problem.rows("gy") == "num_entries":
        gy = gy[order]
    arrays = [gy, *blocks]
    if dtype is not None:
        arrays = [None if a is None else a.astype(dtype) for a in arrays]
    return getattr(partials, f"get_partial_{name}_val")(*arrays, *more, **keywords)


CASES = [
    (case, number)
    for case in VARIANTS
    for number, _ in enumerate(OPERATORS[case.op].signature.inputs)
]


@pytest.mark.parametrize(("case", "number"), CASES, ids=str)
@pytest.mark.parametrize("graph", ["random", "shared edges", "long rows"])
def test_value(case, number, graph):
    op = OPERATORS[case.op]
    name = list(op.signature.inputs)[number]
    if set(op.signature.one_of[:1]) & set(case.absent):
        pytest.skip("Fortran needs the first of those inputs")
    if name in case.absent or (not op.signature.has_graph and graph != "random"):
        pytest.skip("not there")
    problem = case.problem(GRAPHS[graph]())
    real = {o.name for o in op.signature.options.values() if o.kind is float}  # Fortran's defaults
    chosen = {n: value for n, value in problem.options.items() if n not in real}
    problem = replace(problem, options=chosen)
    if problem.options.keys() & op.signature.indexed.keys():
        pytest.skip("Fortran takes no row numbers")
    gradients = problem.run("backward")
    expected = gradients[number]
    largest = max(abs(g).max(initial=0) for g in gradients if g is not None)
    if len(op.signature.inputs[name].forms) > 1:
        expected = packed(expected)
    for called in {f"{op.name}_{name}", op.signature.also.get(name, f"{op.name}_{name}")}:
        np.testing.assert_allclose(by_hand(problem, called, number), expected, 1e-12, 1e-12)
    single = by_hand(problem, f"{op.name}_{name}", number, np.float32)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, 1e-3, 1e-3 * largest)


@pytest.mark.parametrize("op", [n for n, op in OPERATORS.items() if op.signature.by_sample])
def test_by_sample(op):
    (case,) = (c for c in VARIANTS if c.op == op)
    problem = case.problem()
    expected = problem.run("backward", per_sample=True)[1]
    got = by_hand(problem, f"{op}_basis", 1, per_sample=True)
    np.testing.assert_allclose(got, expected, 1e-12, 1e-12)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("gno_kernel", "dim hidden in_features out_features activation"),
        ("gno_conv", "hidden activation"),
        ("gno_aggregate", ""),
        ("kernel_conv", "kernel reduce"),
        ("ono_encode", "points modes"),
        ("ono_decode", "points modes"),
        ("elem_scale", "width"),
    ],
)
def test_words_of_indices(op, words):
    """Elements of `indices` are those of the Fortran library athena, then choices of options."""
    assert words_of(op) == words.split()


def test_names():
    assert "get_partial_gno_agg_kernels_val" in dir(partials)
    assert "indices" in partials.get_partial_gno_kernel_coords_val.__doc__
    with pytest.raises(AttributeError, match="no attribute 'get_partial_sum_val'"):
        partials.get_partial_sum_val  # noqa: B018


REFUSED = {
    "number of arguments": (lambda a: a[:-1], TypeError, "expected upstream_grad, coords"),
    "type": (lambda a: [a[0].tolist(), *a[1:]], TypeError, "upstream_grad: expected a NumPy"),
    "types": (lambda a: [a[0].astype("f"), *a[1:]], TypeError, "coords: expected float32"),
    "absent": (lambda a: [a[0], None, *a[2:]], TypeError, "coords: expected a NumPy array"),
    "indices": (lambda a: [*a[:-1], [1.5]], TypeError, "indices: expected int32 or int64, got"),
    "negative": (lambda a: [*a[:-1], [-1]], ValueError, "indices: expected numbers from 0"),
    "sizes": (
        lambda a: [*a[:-1], [2, 5, 3, 3]],
        ValueError,
        r"params: expected shape \(.*=69,\), got \(51,\)",
    ),
    "size": (
        lambda a: [*a[:-1], [3, 5, 2, 3]],
        ValueError,
        "indices: dim: expected 2 as arrays have it, got 3",
    ),
    "zero": (
        lambda a: [*a[:-1], [2, 0, 2, 3]],
        ValueError,
        "indices: hidden: expected at least 1, got 0",
    ),
    "choice": (
        lambda a: [*a[:-1], [2, 5, 2, 3, 9]],
        ValueError,
        "indices: activation: expected a number from 1 to 4, got 9",
    ),
    "length": (
        lambda a: [*a[:-1], [2, 5]],
        ValueError,
        "indices: expected dim, hidden, in_features, out_features, activation, of which activation "
        "may be left out, got 2 numbers",
    ),
    "shape": (
        lambda a: [a[0][1:], *a[1:]],
        ValueError,
        r"upstream_grad: expected shape \(num_edges=7, .*=6\), got \(6, 6\)",
    ),
    "shape and NaN": (
        lambda a: [a[0][1:] * np.nan, *a[1:]],
        ValueError,
        r"upstream_grad: expected shape \(num_edges=7, .*=6\), got \(6, 6\)",
    ),
    "axes": (
        lambda a: [a[0], a[1][0], *a[2:]],
        ValueError,
        r"coords: expected shape \(num_edges, dim\), got shape \(2,\)",
    ),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_refusals(rng, cause):
    change, error, message = REFUSED[cause]
    arrays = [rng.standard_normal(shape) for shape in ((7, 6), (7, 2), 2 * 5 + 5 + 6 * 5 + 6)]
    with pytest.raises(error, match=message):
        partials.get_partial_gno_kernel_coords_val(*change([*arrays, [2, 5, 2, 3]]))


GRAPHS_THAT_ARE_NONE = {
    "no edge": ([1, 3, 4], [(1, 0)] * 3, "adj_ja: expected edges from 1 to 5, got 0 in row 0"),
    "node": ([1, 3, 4], [(1, 1), (9, 1), (1, 1)], "adj_ja: expected nodes from 1 to 4, got 9 in"),
    "node 0": ([1, 3, 4], [(0, 1)] * 3, "adj_ja: expected nodes from 1 to 4, got 0 in row 0"),
    "end": ([1, 3, 4], [(1, 1)] * 2, "indices: expected adj_ia from 1 to 3, .* got 1 to 4"),
    "order": ([1, 5, 4], [(1, 1)] * 3, "indices: expected adj_ia .* that does not decrease"),
    "length": ([1, 4], [(1, 1)] * 3, "indices: expected adj_ia with 3 offsets, got 2 numbers"),
    "columns": ([1, 3, 4], [(1, 1, 1)] * 3, r"adj_ja: expected two columns, got shape \(3, 3\)"),
}


@pytest.mark.parametrize("cause", GRAPHS_THAT_ARE_NONE)
def test_graphs_that_are_none(rng, cause):
    offsets, pairs, message = GRAPHS_THAT_ARE_NONE[cause]
    arrays = [rng.standard_normal(shape) for shape in ((2, 3), (4, 2), (5, 6))]
    with pytest.raises(ValueError, match=message):
        partials.get_partial_gno_agg_features_val(*arrays, offsets, pairs)


def test_keywords(rng):
    gy, x, kappa = (rng.standard_normal(shape) for shape in ((2, 3), (4, 2), (5, 6)))
    graph = [1, 3, 4], [(1, 1), (2, 5), (4, 3)]
    expected = partials.get_partial_gno_agg_features_val(gy, x, kappa, *graph)
    call = functools.partial(partials.get_partial_gno_agg_features_val, gy, features=x, kappa=kappa)
    got = call(adj_ja=graph[1], indices=graph[0])
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(TypeError, match="expected upstream_grad, features, kappa, indices, adj_ja"):
        call(indices=graph[0])
    with pytest.raises(TypeError, match="per_sample: expected True or False, got 1"):
        call(adj_ja=graph[1], indices=graph[0], per_sample=1)


@pytest.mark.parametrize("number", [np.inf, np.nan, 1e308])
def test_numbers_that_are_not_finite(rng, number):
    """Nonfinite values are passed through."""
    gy, x, basis = (rng.standard_normal(shape) for shape in ((3, 2), (3, 4), 8))
    gy[:] = number
    got = partials.get_partial_ono_encode_u_val(gy, x, basis, [4, 2])
    with np.errstate(all="ignore"):
        expected = pyops.ono_encode.backward(x, basis, gy)[0]
    np.testing.assert_array_equal(got, expected)


def test_docstrings():
    text = partials.get_partial_gno_conv_params_val.__doc__
    names = ["upstream_grad", "features", "coords", "params", "indices", "adj_ja"]
    assert [line.partition(" :")[0] for line in text.split("\n") if " : " in line] == names
    assert list(inspect.signature(partials.get_partial_gno_conv_params_val).parameters) == [
        *names,
        "per_sample",
    ]
    choices = OPERATORS["gno_conv"].signature.options["activation"].choices
    codes = ", ".join(f"{code} {choice}" for code, choice in enumerate(choices, start=1))
    assert f"activation ({codes})" in text


def test_every_gradient_is_there():
    expected = itertools.chain.from_iterable(
        [f"get_partial_{op.name}_{name}_val" for name in op.signature.inputs]
        for op in OPERATORS.values()
    )
    assert set(expected) <= set(dir(pyops.partials))
