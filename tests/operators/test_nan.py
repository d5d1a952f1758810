"""A NaN or an infinity affects exactly the dependent results."""

from dataclasses import replace

import numpy as np
import pytest

from pyops import Graph

from ..support.cases import ANGULAR, PHASES, SELECTING, SOFTMAX, STATISTICS, VARIANTS

# Softmax and statistics are tested in families/test_attention.py and test_aggregate.py, extremes
# in test_infinities.py.
TABLE = [
    case
    for case in VARIANTS
    if case.op not in SOFTMAX and dict(case.choices).get("reduce") not in (*SELECTING, *STATISTICS)
]
SMOOTH = [case for case in TABLE if "relu" not in dict(case.choices).values()]
WIDTHS = {"hidden": 3, "in_features": 2, "out_features": 3, "columns": 3, "channels": 2}
WIDTHS |= {"depth": 1, "src_width": 2, "dst_width": 1, "edge_width": 2}


def changed(results, others, tolerance=0):
    """Return where two runs differ, as one mask for all results."""
    pairs = [(a, b) for a, b in zip(results, others, strict=True) if a is not None]
    return np.concatenate([~(abs(a - b) <= tolerance * abs(a)).ravel() for a, b in pairs])


def inside(problem):
    """Return the problem with distances below the cutoff, beyond which nothing depends on them."""
    distances = problem.arrays.get("distances")
    return problem if distances is None else problem.having(distances=0.6 * distances)


def entries(problem, phase):
    """Yield for each element its name and a function that reruns the phase with it replaced."""
    for name in problem.names(phase):
        for index, element in np.ndenumerate(problem.arrays[name]):
            if element is not None:

                def put(value, name=name, index=index):
                    array = problem.arrays[name].copy()
                    array[index] = value(array[index])
                    return problem.having(**{name: array}).run(phase)

                yield f"{name}{list(index)}", put


@pytest.mark.parametrize("graph", ["isolated nodes", "shared edges"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_nan(case, phase, graph):
    if case.op in ANGULAR and graph == "shared edges":  # an edge with itself has no angle
        ends = [0, 2, 2, 1, 1, 0, 0, 3, 0], [3, 0, 3, 2, 0, 3, 2, 1, 2]
        problem = case.problem(Graph(*ends), **WIDTHS)
    else:
        problem = inside(replace(case, graph=graph).problem(**WIDTHS))
    results = problem.run(phase)
    for where, put in entries(problem, phase):
        depends = changed(results, put(lambda x: x + 0.25))
        spoilt = put(lambda x: np.nan)
        is_nan = np.concatenate([np.isnan(a).ravel() for a in spoilt if a is not None])
        assert (is_nan == depends).all(), where


@pytest.mark.parametrize("phase", ["double_backward", "jvp"])
@pytest.mark.parametrize("case", [c for c in SMOOTH if c.op != "kernel_conv"], ids=str)
def test_nan_with_one_cotangent(case, phase):
    """Inputs that only multiply absent cotangents have no effect.

    A weight and its bias, separate inputs of kernel_conv, count as one.
    """
    full = inside(replace(case, graph="isolated nodes").problem(**WIDTHS))
    cotangents = ["h" + name for name in full.op.signature.inputs if full.arrays[name] is not None]
    for kept in cotangents:
        problem = full.having(**{name: None for name in cotangents if name != kept})
        results = problem.run(phase)
        for where, put in entries(problem, phase):
            depends = changed(results, put(lambda x: x + 0.25))
            spoilt = put(lambda x: np.nan)
            is_nan = np.concatenate([np.isnan(a).ravel() for a in spoilt if a is not None])
            assert (is_nan == depends).all(), (kept, where)


@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_infinity(case, phase, infinity):
    problem = replace(case, graph="isolated nodes").problem(**WIDTHS)
    results = problem.run(phase)
    for where, put in entries(problem, phase):
        depends = changed(results, put(lambda x: x + 0.25))
        spoilt = changed(results, put(lambda x: infinity), 1e-12)
        assert not (spoilt & ~depends).any(), where


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("case", [case for case in TABLE if case not in SMOOTH], ids=str)
def test_relu_lets_nan_pass_like_the_others(case, phase):
    relu = case.problem(**WIDTHS)
    silu = replace(relu, options={**relu.options, "activation": "silu"})
    pairs = zip(entries(relu, phase), entries(silu, phase), strict=True)
    for (where, put), (_, put_other) in pairs:
        both = zip(put(lambda x: np.nan), put_other(lambda x: np.nan), strict=True)
        given = ((a, b) for a, b in both if a is not None)
        assert all((np.isnan(a) == np.isnan(b)).all() for a, b in given), where
