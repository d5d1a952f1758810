"""Sums of many terms, and arrays of more elements than int32 can count."""

import tempfile
from dataclasses import replace

import numpy as np
import pytest

import pyops

from ..reference import reference
from ..support.cases import PHASES, SOFTMAX, Case
from ..support.compare import assert_close
from ..support.graphs import shared
from ..support.programs import run

ONES = 2**25
ROWS, WIDTH = 2**22 + 5, 512
MATRICES = {"in_features": 16, "out_features": 32}
# Widths for which the array of edges has rows of WIDTH elements.
EDGE_ARRAYS = {
    "gno_aggregate": ("kappa", MATRICES),
    "gno_conv": ("coords", {"dim": WIDTH}),
    "kernel_conv": ("hidden_layer", {"hidden": WIDTH}),
    "gat": ("mask", {"heads": WIDTH, "width": 1}),
    "aggregate": ("edge", {"edge_width": WIDTH}),
    "gat_v2": ("mask", {"heads": WIDTH, "width": 1}),
    "segment_softmax": ("logits", {"heads": WIDTH}),
    "transformer_conv": ("mask", {"heads": WIDTH, "width": 1}),
}
CHOICES = {
    "gno_aggregate": (),
    "gno_conv": (("activation", "tanh"),),
    "kernel_conv": (("kernel", "matrix"), ("reduce", "sum")),
    "gat": (("concat", True), ("activation", "tanh")),
    "aggregate": (("reduce", "sum"),),
    "segment_softmax": (),
    "transformer_conv": (("concat", True),),
}
ABSENT = {"kernel_conv": ("edge_weight",), "gat": ("edge_features",)}
CHOICES["gat_v2"], ABSENT["gat_v2"] = CHOICES["gat"], ABSENT["gat"]
ABSENT["transformer_conv"] = ABSENT["gat"]
ABSENT["aggregate"] = ("weight",)


def large_array():
    """Return an array of zeros with more elements than int32 can count, in a sparse file."""
    with tempfile.TemporaryFile() as file:
        array = np.memmap(file, np.float32, "w+", shape=(ROWS, WIDTH))
    assert array.size > 2**31
    return array


@pytest.mark.parametrize("name", EDGE_ARRAYS)
def test_more_elements_than_int32_counts(name):
    array, widths = EDGE_ARRAYS[name]
    offsets, indices = [0, 2, 3, 6], [0, 3, 1, 2, 2, 0]
    case = Case(name, CHOICES[name], ABSENT.get(name, ()))
    small = case.problem(pyops.Graph.from_csc(offsets, indices, 4), **widths).map(np.float32)
    small = small.having(**{"h" + array: None})
    large = large_array()
    last = np.arange(ROWS - 6, ROWS)
    large[last] = small.arrays[array]
    graph = pyops.Graph.from_csc(offsets, indices, 4, last, ROWS)
    problem = replace(small, graph=graph).having(**{array: large})
    rest = [n for n in small.op.signature.inputs if n != array and small.arrays[n] is not None]
    for phase, wanted in {
        "forward": {},
        "jvp": {},
        "backward": {"wanted": rest},
        "double_backward": {"wanted": [*rest, "gy"]},
    }.items():
        assert_close(problem.run(phase, **wanted), small.run(phase, **wanted), 1e-6)


@pytest.mark.slow
def test_more_matrix_elements_than_int32_counts():
    """All rows but the last have coordinates 0 and zero gradients."""
    case = Case("gno_kernel", (("activation", "silu"),), ())
    small = case.problem(pyops.Graph([0] * 6, [0] * 6, 1), hidden=1, **MATRICES).map(np.float32)
    coords, hcoords = np.zeros((2, ROWS, 2), np.float32)
    large = small.having(coords=coords, hcoords=hcoords, gy=large_array())
    for name in "coords", "hcoords", "gy":
        large.arrays[name][-6:] = small.arrays[name]
    y = large_array()
    for phase in "forward", "jvp":
        large.run(phase, out=y)
        assert_close([y[-6:]], small.run(phase), 1e-6)
    for phase in "backward", "double_backward":
        wanted = [*small.op.signature.inputs]
        by_coords, by_params, *_ = large.run(phase, wanted=wanted)
        assert not by_coords[:-6].any()
        assert_close([by_coords[-6:], by_params], small.run(phase, wanted=wanted)[:2], 1e-6)


@pytest.mark.parametrize("name", [*EDGE_ARRAYS, "edge_to_edge"])
def test_edges_of_several_segments(name):
    """Sums over 1,025 entries have segments of 1,024 and of a single entry."""
    edges = np.repeat(range(8), [1025, 1025, 1, 2, 1, 2, 1, 1])
    src, dst = np.array([[0, 1, 2, 0, 3, 0, 4, 2], [1, 0, 0, 2, 0, 3, 0, 1]])[:, edges]
    graph = shared(src, dst, edges, 5, 5, 8)
    choices = CHOICES.get(name, (("exclude", "image"),))
    problem = Case(name, choices, ABSENT.get(name, ())).problem(graph)
    for phase in PHASES:
        assert_close(problem.run(phase), reference(problem, phase), 1e-11)


@pytest.fixture(scope="module")
def many_entries():
    """Return a graph whose entries all run from one node to one node and share one edge."""
    zeros = np.zeros(ONES, np.int32)
    return pyops.Graph.from_csc([0, ONES], zeros, 1, zeros)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EDGE_ARRAYS if name not in SOFTMAX])
def test_float32_ones_do_not_saturate(name, many_entries):
    """Each derivative of this product of ones equals the number of entries."""
    widths = {"dim": 1, "hidden": 1, "in_features": 1, "out_features": 1, "columns": 1}
    widths |= {"x_width": 1}
    choices = (("activation", "relu"),) if name == "gno_conv" else CHOICES[name]
    problem = Case(name, choices, ()).problem(many_entries, **widths).map(np.ones_like)
    if name == "gno_conv":  # U and V are 1, biases 0
        block, tangent = np.array([1.0, 0, 1, 0]), np.array([1.0, 1, 0, 0])
        problem = problem.having(params=block, hparams=tangent)
    if name == "kernel_conv":
        problem = problem.having(bias=np.zeros(1), hbias=np.zeros(1))
    if name == "aggregate":  # source features alone
        problem = problem.having(**dict.fromkeys(("own", "hown", "edge", "hedge")))
        problem = problem.having(gy=np.ones((1, 1)))
    problem = problem.map(np.float32)
    assert problem.run("forward")[0].item() == ONES
    for gradient in problem.run("backward"):
        assert gradient is None or (gradient == ONES).all()
    double = problem.map(np.float64)
    for phase in "jvp", "double_backward":
        assert_close(problem.run(phase), double.run(phase), 1e-6)


@pytest.mark.slow
@pytest.mark.bare
def test_million_nodes():
    """Forward and backward on 32 million edges in 16 GB; some rows are checked by the reference."""
    most = run(
        """
        from tests.reference import gno_conv
        nodes, rows = 10**6, np.array([0, 271_828, 999_999])
        graph, features, coords, params = arguments = problem(nodes, 32, 64, 16, 16)
        y = pyops.gno_conv(*arguments, hidden=64)
        gradients = pyops.gno_conv.backward(*arguments, y, hidden=64)
        most = peak()
        entries = np.flatnonzero(np.isin(graph.dst, rows))
        part = pyops.Graph(graph.src[entries], np.searchsorted(rows, graph.dst[entries]), nodes, 3)
        arrays = [a.astype(float) for a in (features, coords[entries], params)]
        expected = gno_conv.forward(part, *arrays, hidden=64, activation="relu")
        assert abs(y[rows] - expected).max() < 1e-5 * abs(expected).max()
        square = np.vdot(y, y.astype(float))  # y is linear in the features
        assert abs(np.vdot(features, gradients[0].astype(float)) / square - 1) < 1e-5
        print(most)
        """,
        timeout=600,
    )
    assert int(most) < 16 * 10**9
