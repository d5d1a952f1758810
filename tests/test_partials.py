"""The gradients of the Fortran face from plain arrays, against `backward`."""

import itertools

import numpy as np
import pytest

import pyops
from pyops import partials

from .cases import OPERATORS, PAIRED, VARIANTS
from .graphs import GRAPHS


def packed(x):
    """The second form of an array: a block, or heads side by side."""
    return x.T.ravel() if x.ndim == 2 else x.reshape(len(x), x.shape[1] * x.shape[2])


def by_hand(problem, name, number, dtype=None, **keywords):
    """A gradient of a case by the procedure of the Fortran face."""
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
        for form, x in zip(forms, blocks, strict=True):
            for size, length in zip(form, x.shape, strict=True):
                if size.text.isidentifier():
                    known[size.text] = length
        known |= {o.name: problem.options[o.name] for o in declared if o.is_size}
        known |= {"modes": known.get("modes", min(inputs[-1].shape))}
        indices = [known[n] for n in order_of_sizes(op.name) if n in known]
        more = ([*indices, *codes],)
    gy = problem.arrays["gy"]
    if problem.rows("gy") == "num_entries":
        gy = gy[order]
    arrays = [gy, *blocks]
    if dtype is not None:
        arrays = [None if a is None else a.astype(dtype) for a in arrays]
    return getattr(partials, f"get_partial_{name}_val")(*arrays, *more, **keywords)


def order_of_sizes(name):
    """Sizes in the order of `indices`, which is that of the kernels."""
    return {"gno_kernel": ["dim", "hidden", "in_features", "out_features"]}.get(
        name, ["points", "modes", "width"]
    )


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
    if op.name in PAIRED and problem.graph.num_src != problem.graph.num_dst:
        pytest.skip("by hand there are as many sources as destinations")
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
    "indices": (lambda a: [*a[:-1], [1.5]], TypeError, "indices: expected integers"),
    "negative": (lambda a: [*a[:-1], [-1]], ValueError, "indices: expected numbers from 0"),
    "sizes": (lambda a: [*a[:-1], [2, 5, 3, 3]], ValueError, "shapes and indices that fit"),
    "choice": (lambda a: [*a[:-1], [2, 5]], ValueError, "shapes and indices that fit"),
    "shape": (lambda a: [a[0][1:], *a[1:]], ValueError, "shapes and indices that fit"),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_refusals(rng, cause):
    change, error, message = REFUSED[cause]
    arrays = [rng.standard_normal(shape) for shape in ((7, 6), (7, 2), 2 * 5 + 5 + 6 * 5 + 6)]
    with pytest.raises(error, match=message):
        partials.get_partial_gno_kernel_coords_val(*change([*arrays, [2, 5, 2, 3]]))


@pytest.mark.parametrize("pairs", [[(1, 0)] * 3, [(9, 1)] * 3, [(1, 1)] * 2, [(0, 1)] * 3])
def test_graphs_that_are_none(rng, pairs):
    arrays = [rng.standard_normal(shape) for shape in ((2, 3), (4, 2), (5, 6))]
    with pytest.raises(ValueError, match="shapes and indices that fit"):
        partials.get_partial_gno_agg_features_val(*arrays, [1, 3, 4], pairs)


def test_every_gradient_is_there():
    expected = itertools.chain.from_iterable(
        [f"get_partial_{op.name}_{name}_val" for name in op.signature.inputs]
        for op in OPERATORS.values()
    )
    assert set(expected) <= set(dir(pyops.partials))
