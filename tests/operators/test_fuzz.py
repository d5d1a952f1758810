"""Property-based tests by hypothesis: graphs, widths, options, layouts and precisions."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pyops

from ..reference import reference
from ..support.cases import OPERATORS, PHASES, variants
from ..support.graphs import shared
from ..support.layouts import LAYOUTS
from ..support.rounding import bounds

settings.register_profile("pyops", deadline=None, print_blob=True)
settings.load_profile("pyops")
settings.register_profile("some", max_examples=100, derandomize=True, database=None)
settings.register_profile("many", max_examples=10_000)


@st.composite
def graphs(draw):
    num_src, num_dst = draw(st.integers(0, 12)), draw(st.integers(0, 40))
    most = draw(st.sampled_from([8, 200])) if num_src and num_dst else 0
    entries = draw(st.integers(0, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    hubs = draw(st.integers(1, max(1, num_dst)))  # the first `hubs` nodes have all entries
    src = rng.integers(0, num_src, entries).astype(dtype)
    dst = rng.integers(0, min(hubs, num_dst), entries).astype(dtype)
    if draw(st.booleans()):
        return pyops.Graph(src, dst, num_src, num_dst)
    rows = draw(st.integers(1, 1 + entries))
    ids = rng.integers(0, rows, entries) if draw(st.booleans()) else rng.permutation(entries)
    return shared(src, dst, ids, num_src, num_dst, max(rows, entries))


@st.composite
def problems(draw, name):
    case = draw(st.sampled_from([*variants(OPERATORS[name])]))
    width = st.one_of(st.integers(1, 5), st.integers(1, 20), st.sampled_from([8, 16, 32]))
    widths = {name: draw(width) for name in ("hidden", "in_features", "out_features")}
    widths |= {"dim": draw(st.integers(1, 4)), "columns": widths["out_features"]}
    widths |= {"modes": draw(width), "width": draw(width)}
    widths |= {"max_degree": draw(st.integers(0, 6)), "num_spherical": draw(st.integers(1, 10))}
    widths |= {"num_radial": draw(st.integers(1, 4)), "exponent": draw(st.integers(1, 8))}
    widths |= {"channels": draw(width), "middle": draw(width)}
    widths["points"] = max(2, widths["modes"] + draw(st.integers(0, 40)))
    problem = case.problem(draw(graphs()), seed=draw(st.integers(0, 2**32)), **widths)
    if "basis" in problem.arrays:  # beyond, second derivatives lose more than the bound allows
        assume(np.linalg.cond(problem.arrays["basis"]) < 30)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    layout = draw(st.sampled_from([np.array, *LAYOUTS.values()]))
    return problem.map(lambda a: layout(a.astype(dtype))), dtype


def check(drawn, threads):
    problem, dtype = drawn
    plain = problem.map(lambda a: np.array(a, np.float64))
    pyops.set_num_threads(threads)
    for phase in PHASES:
        runs = problem.run(phase), reference(plain, phase), bounds(plain, phase, dtype)
        for got, expected, bound in zip(*runs, strict=True):
            assert (got is None) == (expected is None)
            if got is not None:
                assert got.dtype == dtype
                assert got.shape == expected.shape
                assert (abs(got - expected) <= bound).all(), phase


@pytest.mark.parametrize("profile", ["some", pytest.param("many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPERATORS)
def test_drawn(name, profile):
    settings.get_profile(profile)(given(problems(name), st.integers(1, 3))(check))()
