"""The device front end: accepted arguments, refusals and their messages.

The tests share a platform and its problems, so they are one file.
"""

import ast
import copy
import functools
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pyops
from pyops import blocks
from pyops._schema import INDEX_ARRAYS
from pyops.cuda import DeviceGraph, _device, _dispatch
from pyops.cuda._arguments import Arguments
from pyops.cuda._graph import SEGMENT, cut

from ...support.cases import OPERATORS, PHASES, representative, variants
from ...support.compare import assert_same
from ...support.graphs import drawn
from . import on_device as ops
from .host import COMPILER
from .platform import OnDevice, Platform, to_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
every_phase = pytest.mark.parametrize("phase", PHASES)


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    made = Platform()
    monkeypatch.setattr(_device, "found", lambda: made)
    return made


MATRICES = next(variants(OPERATORS["kernel_conv"]))


def problem(op="gno_aggregate", dtype=np.float32, case=None):
    """Return the same call on the host and on the device."""
    case = case or (MATRICES if op == "kernel_conv" else representative(op))
    here = case.problem(drawn(9, 7, 60)).map(dtype)
    there = here.map(to_device)
    if here.graph is not None:
        there = SimpleNamespace(
            run=functools.partial(_run, there, here.graph.to_device()), arrays=there.arrays
        )
    return here, there


def _run(problem, graph, phase, **keywords):
    function = problem.op if phase == "forward" else getattr(problem.op, phase)
    arrays = [problem.arrays[name] for name in problem.names(phase)]
    results = function(graph, *arrays, **{**problem.options, **keywords})
    return results if isinstance(results, tuple) else (results,)


GRAPH = pyops.Graph([0, 1, 2], [1, 2, 0])
FEATURES, KAPPA = np.ones((3, 2), "f"), np.ones((3, 4), "f")


def call(graph=GRAPH, features=FEATURES, kappa=KAPPA, move=to_device, **keywords):
    if isinstance(graph, pyops.Graph):
        graph = graph.to_device()
    arrays = [move(a) if type(a) is np.ndarray else a for a in (features, kappa)]
    return pyops.gno_aggregate(graph, *arrays, **keywords)


@every_phase
def test_layouts(phase):
    """Neither inputs nor results need to be contiguous."""
    here, there = problem()
    expected = there.run(phase)
    spread = {
        n: a if a is None else to_device(np.array(a, order="F")) for n, a in here.arrays.items()
    }
    strided = SimpleNamespace(op=here.op, arrays=spread, names=here.names, options=here.options)
    assert_same(_run(strided, here.graph.to_device(), phase), expected)
    out = [None if a is None else to_device(np.full(a.shape[::-1], 3, "f").T) for a in expected]
    single = phase in ("forward", "jvp")
    results = there.run(phase, out=out[0] if single else out)
    for result, given, right in zip(results, out, expected, strict=True):
        assert result is given
        assert right is None or np.array_equal(result, right)


def test_the_device_of_the_arguments_is_used(platform):
    x = to_device(KAPPA, 1)
    pyops.add(x, x)
    assert platform.used == [1]


def test_graph():
    graph = drawn(9, 7, 60)
    moved = graph.to_device(1)
    assert isinstance(moved, DeviceGraph)
    assert moved.device == 1
    assert moved.to_host() is graph
    for name in "num_src", "num_dst", "num_edges", "num_entries":
        assert getattr(moved, name) == getattr(graph, name)
    assert repr(moved) == f"Device{graph!r}"[:-1] + ", device=1)"
    assert graph.to_device().device == 0
    for name in "in_offsets", "out_nodes", "id_entries", "in_order":
        assert moved._index(name) is moved._index(name)
        assert np.array_equal(moved._index(name), graph._index(name))
    rows = graph.dst[graph._index("in_order") - 1] + 1
    assert np.array_equal(moved._index("in_rows"), rows)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_graph_copies(again):
    moved = drawn(9, 7, 60).to_device(1)
    other = again(moved)
    assert other.device == 1
    assert np.array_equal(other.to_host().src, moved.to_host().src)
    assert np.array_equal(other._index("in_order"), moved._index("in_order"))


def test_graph_of_a_graph():
    moved = GRAPH.to_device(1)
    assert moved.to_device(1) is moved
    assert moved.to_device(0).device == 0
    assert moved.to_device(0).to_host() is GRAPH
    shared = moved.with_edge_ids([0, 0, 1], 2)
    assert shared.device == 1
    assert shared.num_edges == 2


def test_graph_of_indices_on_the_device():
    graph = pyops.Graph(to_device(GRAPH.src), to_device(GRAPH.dst))
    assert np.array_equal(graph.src, GRAPH.src)
    assert np.array_equal(graph.dst, GRAPH.dst)
    with pytest.raises(TypeError, match=r"src: expected int32 or int64, got float32"):
        pyops.Graph(to_device(GRAPH.src.astype("f")), GRAPH.dst)


def test_blocks():
    parts = [np.random.default_rng(0).random(shape) for shape in ((3, 2), (3,), (4, 3), (4,))]
    block = blocks.pack_gno(*map(to_device, parts))
    assert isinstance(block, OnDevice)
    assert np.array_equal(block, blocks.pack_gno(*parts))
    again = blocks.unpack_gno(block, dim=2, hidden=3)
    for part, expected in zip(again, parts, strict=True):
        assert isinstance(part, OnDevice)
        assert np.array_equal(part, expected)


def test_row_numbers_are_copied_once(platform):
    """Row indices are copied once, and again if other values, another type or changed in place."""
    graph = pyops.Graph([0, 1, 2, 0], [1, 0, 0, 2])
    moved, x = graph.to_device(), np.random.default_rng(0).random((4, 3))
    reverse = np.array([1, 0, 3, 2])

    def copies(rows):
        before = platform.copies
        got = pyops.edge_to_edge(moved, to_device(x), exclude="image", reverse=rows)
        assert_same([np.array(got)], [pyops.edge_to_edge(graph, x, exclude="image", reverse=rows)])
        return platform.copies - before

    copies(reverse)
    assert copies(reverse) == 0
    assert copies(reverse.copy()) == 0
    assert copies(reverse.astype(np.int32)) == 1
    reverse[2:] = -1
    assert copies(reverse) == 1
    reverse[2:] = 2
    with pytest.raises(ValueError, match="reverse: expected the reverse of an edge to have"):
        copies(reverse)


DECLARED = {
    node.name: {item.target.id: ast.unparse(item.annotation) for item in node.body}
    for node in ast.parse(Path(_dispatch.__file__).with_name("_declared.pyi").read_text()).body
    if isinstance(node, ast.ClassDef)
}


@pytest.mark.parametrize("op", sorted({*ops.MODULES} - {"elementwise"}))
@every_phase
def test_arguments_are_declared(op, phase, monkeypatch):
    """A phase receives what the stub declares, index arrays and results of other phases apart."""
    received = []

    def arguments(values):
        received.append(values)
        return Arguments(values)

    monkeypatch.setattr(_dispatch, "Arguments", arguments)
    _, there = problem(op)
    there.run(phase)
    types = DECLARED[op.title().replace("_", "")]
    for name, value in received[0].items():
        kind = types.get(name, "")
        if "Array" in kind:
            assert isinstance(value, np.ndarray) or (value is None and "None" in kind), name
        elif kind:
            assert isinstance(value, (int, float) if kind == "float" else int), name
    missing = types.keys() - received[0].keys() - {*INDEX_ARRAYS, "y", "alpha"}
    assert not missing


def test_segments_of_rows():
    degrees = np.array([0, 3 * SEGMENT, 1, SEGMENT, SEGMENT + 1, 0])
    segments, joins = cut(np.concatenate([[0], np.cumsum(degrees)]))
    row, start, stop = segments.T
    assert (stop - start).max() <= SEGMENT
    assert np.array_equal(np.diff(joins), [1, 3, 1, 1, 2, 1])
    assert np.array_equal(np.bincount(row, stop - start), degrees)
    assert np.array_equal(start[1:], stop[:-1])


@pytest.mark.parametrize(
    "case", [representative("gno_conv"), *variants(OPERATORS["kernel_conv"])], ids=str
)
def test_long_rows(case):
    """Rows of several segments, and more coordinates than registers hold."""
    here = case.problem(drawn(3, 2, 5 * SEGMENT // 2), dim=5)
    graph = here.graph.to_device()
    assert len(graph._index("in_segments")) > graph.num_dst
    for phase in PHASES:
        expected, got = here.run(phase), _run(here.map(to_device), graph, phase)
        for a, b in zip(got, expected, strict=True):
            if b is not None:
                assert abs(a - b).max() <= 1e-13 * abs(b).max()


def test_several_workspaces(monkeypatch):
    """Segments and edges exceed a single workspace."""
    for op in _MODULES:
        _, there = problem(op, np.float64)
        expected = [there.run(phase) for phase in PHASES]
        monkeypatch.setattr(f"pyops.cuda.{_MODULES[op]}.WORKSPACE", 3000)
        for phase, right in zip(PHASES, expected, strict=True):
            for a, b in zip(there.run(phase), right, strict=True):
                assert abs(a - b).max() <= 1e-14 * abs(b).max()


def test_several_batches_of_edges(monkeypatch):
    monkeypatch.setattr("pyops.cuda.ops.kernel_conv.EDGES", 3)
    case = representative("kernel_conv")
    assert ("kernel", "diagonal") in case.choices
    here, there = problem(dtype=np.float64, case=case)
    for phase in PHASES:
        for a, b in zip(there.run(phase), here.run(phase), strict=True):
            assert abs(a - b).max() <= 1e-13 * abs(b).max()


_MODULES = {
    "gno_conv": "_convolution",
    "kernel_conv": "_convolution",
    "gno_kernel": "ops.gno_kernel",
    "edge_mlp": "_edge_network",
    "edge_network": "_edge_network",
}


@pytest.mark.parametrize(
    ("precision", "least", "most"), [("tf32", 1e-5, 4e-3), ("tf32x3", 0, 4e-6)]
)
@pytest.mark.parametrize(
    "op",
    ["gno_conv", "kernel_conv", "gno_kernel", "edge_network", "ono_encode", "dimenet_aggregate"],
)
def test_precision(op, precision, least, most):
    """Products have factors of 11 bits, or of two such parts; float64 is not affected."""
    for dtype in np.float32, np.float64:
        here, there = problem(op, dtype)
        for phase in PHASES:
            exact = here.map(np.float64).run(phase)
            errors = [
                abs(a - b).max() / abs(b).max()
                for a, b in zip(there.run(phase, precision=precision), exact, strict=True)
            ]
            if dtype is np.float64:
                assert max(errors) < 1e-12
            else:
                assert least < max(errors) < most


@pytest.mark.parametrize("op", sorted({*_dispatch.supported()} & OPERATORS.keys()))
def test_a_precision_is_taken_where_matrices_are_multiplied(op, platform, monkeypatch):
    multiply, asked = platform.runtime.matmul, []

    def product(a, b, out=None, precision="highest"):
        asked.append(precision)
        return multiply(a, b, out, precision)

    monkeypatch.setattr(platform.runtime, "matmul", product)
    _, there = problem(op)
    precision = "tf32" if op.startswith(_dispatch.PRECISE) else "highest"
    for phase in PHASES:
        there.run(phase, precision=precision)
    assert {*asked} == ({"tf32"} if precision == "tf32" else set())


class Foreign:
    """Array of another library, with protocols only."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 2, 0


def test_other_libraries(platform, monkeypatch):
    """All objects that support DLPack or the CUDA array interface are accepted."""
    adopt = platform.adopt

    def adopt_any(value):
        return adopt(value if isinstance(value, np.ndarray) else to_device(value.array))

    monkeypatch.setattr(platform, "adopt", adopt_any)
    old = type("Old", (), {"array": KAPPA, "__cuda_array_interface__": {}})
    for value in Foreign(KAPPA), old():
        assert np.array_equal(pyops.negative(value), -KAPPA)


@every_phase
def test_half_precision(phase):
    """Half precision is computed in float32 on the device, and rounded there."""
    here, there = problem(dtype=np.float16)
    for one, other in zip(here.run(phase), there.run(phase), strict=True):
        assert type(other) is OnDevice
        assert one.dtype == other.dtype == np.float16
        np.testing.assert_allclose(one.astype("f"), other.get().astype("f"), 2e-3, 1e-3)


def test_supported_operators_are_declared():
    assert set(_dispatch.supported()) <= {
        op.declaration for op in pyops._call.operator.OPERATORS.values()
    }


def test_nothing_is_imported_before_it_is_needed():
    code = (
        "import sys, numpy as np, pyops\n"
        "pyops.exp(np.ones(3)), pyops.Graph([0], [0])\n"
        "try: pyops.exp([1.0])\nexcept TypeError: pass\n"
        "assert not any(name.startswith(('pyops.cuda', 'cupy')) for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
