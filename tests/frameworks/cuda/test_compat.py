"""Low-level calls of pylibcugraphops with device arrays, against those with host arrays.

The tests run over the same table of calls, so they are one file.
"""

import inspect
import pickle
import re

import numpy as np
import pytest

from pyops import Graph
from pyops.compat import pylibcugraphops
from pyops.compat.pylibcugraphops import MMAOp, _index_cache, dimenet, operators
from pyops.compat.pylibcugraphops.operators import AggOp
from pyops.cuda import _device, _dispatch

from ...compat.calls import CASES, NODES, draw, plain
from ...compat.test_calls import may_be_none
from ...support.compare import assert_same
from . import on_device, strict
from .host import COMPILER
from .strict import StrictPlatform, Tensor

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
every_case = pytest.mark.parametrize("case", CASES, ids=str)
ONE_OF_EACH = list({case.call.__name__: case for case in CASES}.values())
every_call = pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
without_device = pytest.mark.skipif(on_device.DEVICE, reason="about this machine")
INDICES = {"coo_idx", "src_offsets", "dst_offsets", "dst_edge_index", "rev_edge_ids"}


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setattr(_index_cache, "_cache", {})
    if on_device.DEVICE:
        return None
    made = StrictPlatform()
    monkeypatch.setattr(_device, "found", lambda: made)
    monkeypatch.setattr(_dispatch, "run", strict.run)
    return made


def there(array, number=0):
    if on_device.DEVICE:
        return on_device.move(array)
    moved = strict.strict(array)
    moved.number = number
    return moved


def back(array):
    return on_device.back(array) if on_device.DEVICE else np.array(array)


def assert_equal(got, expected, most=1e-11):
    for name, right in expected.items():
        np.testing.assert_allclose(back(got[name]), right, most, 0.1 * most, err_msg=name)


def test_every_call_is_in_the_table():
    found = {
        name: value
        for module in (operators, dimenet)
        for name, value in vars(module).items()
        if re.search("_(fwd|bwd)", name) and not getattr(value, "half", "")
    }
    assert {case.call for case in CASES} == {*found.values()}


@every_case
def test_values(case, platform):
    """Results on the given stream, by an integer of any type; graphs are built of device arrays."""
    if on_device.DEVICE:
        import cupy

        stream = cupy.cuda.Stream()
        got = case.run(there, **{case.stream: np.int64(stream.ptr)})
        stream.synchronize()
    else:
        got = case.run(there, **{case.stream: np.int64(77)})
        assert platform.streams == [77]
        assert type(platform.streams[0]) is int
    assert_equal(got, case.run())


@every_call
def test_calls_that_follow_copy_nothing(case, platform):
    made = {n: case.moved(there, value) for n, value in case.given.items()}
    runs = []
    for _ in range(2):
        outs = {n: there(np.zeros(shape, kind)) for n, (shape, kind) in case.outs.items()}
        before = platform and (platform.copies, platform.reads)
        case.call(**outs, **made)
        runs.append([back(array) for array in outs.values()])
    assert (platform and (platform.copies, platform.reads)) == before
    assert_same(*runs)


@without_device
@every_call
def test_arrays_of_other_libraries(case):
    got = case.run(lambda array: Tensor(there(array)))
    assert_equal({name: tensor.array for name, tensor in got.items()}, case.run())


@every_call
def test_one_array_on_the_host(case):
    for name in case.arrays:
        if name in INDICES:
            assert_equal(case.run(there, one=(name, lambda a: a)), case.run())
            continue
        text = f"^{case.call.__name__}: {name}: expected an array on the device like the other"
        with pytest.raises(TypeError, match=text):
            case.run(there, one=(name, lambda a: a))


@every_call
def test_one_array_on_a_device(case):
    for name in case.arrays:
        with pytest.raises(TypeError, match=f"^{case.call.__name__}: .*expected an array on the d"):
            case.run(one=(name, there))


@every_call
def test_none_for_an_array(case):
    for name, parameter in inspect.signature(case.call).parameters.items():
        if name in case.given and not may_be_none(case, name, parameter):
            with pytest.raises(
                (TypeError, ValueError), match=f"{case.call.__name__}: {name}: expe"
            ):
                case.run(there, **{name: None})


@without_device
@every_call
def test_two_devices(case):
    for name in case.arrays[1:]:
        text = f"^{case.call.__name__}: {name}: expected device 0 like {case.arrays[0]}, got dev"
        with pytest.raises(ValueError, match=text):
            case.run(there, one=(name, lambda a: there(a, 1)))


@every_call
@pytest.mark.parametrize(
    ("stream", "kind", "text"),
    [
        (True, TypeError, "expected an integer, got True"),
        (np.True_, TypeError, "expected an integer, got "),
        ("first", TypeError, "expected an integer, got 'first'"),
        (-1, ValueError, "expected an integer from 0 to .*, got -1"),
    ],
)
def test_streams_that_are_none(case, stream, kind, text):
    with pytest.raises(kind, match=f"^{case.call.__name__}: {case.stream}: {text}"):
        case.run(there, **{case.stream: stream})


PRECISIONS = {None: "highest", MMAOp.HighPrecision: "highest", MMAOp.LowPrecision: "tf32"}


@without_device
@pytest.mark.parametrize("operation", PRECISIONS, ids=str)
def test_precision_of_products(platform, monkeypatch, operation):
    """The precision is that of the operation on a device, and that of the arrays on the host."""
    given = []
    products = type(platform.runtime).matmul

    def matmul(self, left, right, out=None, precision="highest"):
        given.append(precision)
        return products(self, left, right, out, precision)

    monkeypatch.setattr(type(platform.runtime), "matmul", matmul)
    named = [c for c in ONE_OF_EACH if "mma_operation" in inspect.signature(c.call).parameters]
    assert len(named) == 4
    for case in named:
        got = case.run(there, mma_operation=operation)
        assert given
        assert {*given} == {PRECISIONS[operation]}
        given.clear()
        assert_equal(got, case.run(mma_operation=operation))
        assert not given


@without_device
def test_graphs_on_two_devices(platform):
    graph, x = plain(there), draw((NODES, 5))
    for number in 1, 0, 1:
        y = there(np.zeros((NODES, 5)), number)
        operators.agg_simple_n2n_fwd(y, there(x, number), graph)
        copies = platform.copies
        operators.agg_simple_n2n_fwd(y, there(x, number), graph)
        assert platform.copies == copies
    assert platform.used[-1] == 1


@without_device
def test_arrays_that_are_not_shared(platform, monkeypatch):
    def adopt(value):
        if value.shape == (3,):
            raise BufferError("it requires gradients")
        return value, 0

    monkeypatch.setattr(platform, "adopt", adopt)
    y, x, weight = (there(np.zeros(s)) for s in ((NODES, 5), (NODES, 5), 3))
    with pytest.raises(
        TypeError, match=r"^agg_weighted_n2n_fwd: edge_weight: expected an array to"
    ):
        operators.agg_weighted_n2n_fwd(y, x, weight, None)


def test_graphs_leave_what_is_on_a_device_behind():
    graph, x = plain(there), draw((NODES, 5))
    operators.agg_simple_n2n_fwd(there(np.zeros((NODES, 5))), there(x), graph)
    assert graph.derived_graphs
    again = pickle.loads(pickle.dumps(graph))
    assert not again.derived_graphs
    assert np.array_equal(again.graph.src, graph.graph.src)


@pytest.mark.parametrize("op", [AggOp.Max, AggOp.Min])
def test_extremes_of_long_rows(op):
    """Extremes among many ties, in rows of several segments."""
    rng = np.random.default_rng(0)
    offsets = np.array([0, 700, 700, 1000])
    graph = pylibcugraphops.make_csc(offsets, rng.integers(0, 3, 1000), rng.permutation(1000))
    x, edge = (rng.integers(-3, 3, (n, w)).astype("f") for n, w in ((3, 2), (1000, 40)))
    gy, results = rng.standard_normal((3, 42)).astype("f"), []
    for move in (lambda a: a.copy()), there:
        y, gx, gedge = (move(np.zeros(a.shape, "f")) for a in (gy, x, edge))
        location = move(np.zeros(gy.shape, int))
        given = move(x), move(edge), graph, op
        operators.agg_simple_n2n_e2n_fwd(y, *given, location)
        operators.agg_simple_n2n_e2n_bwd(gx, gedge, move(gy), graph, op, location)
        results.append({"y": y, "location": location, "gedge": gedge, "gx": gx})
    assert_equal(*results[::-1], 1e-5)
    assert (results[0]["location"][1] == -1).all()


def test_locations_of_other_rows_count_for_nothing():
    graph = pylibcugraphops.make_csc([0, 1, 1, 3], [0, 1, 2])
    gx, gy = there(np.zeros((3, 1))), there(np.ones((3, 1)))
    location = there(np.array([[0], [10**12], [0]]))
    operators.agg_simple_n2n_bwd(gx, gy, graph, AggOp.Max, location)
    assert gx.ravel().tolist() == [1, 0, 0]


X, Y, INTEGERS = np.zeros((NODES, 5)), np.zeros((NODES, 6)), np.zeros((NODES, 5), int)
REFUSED = [
    ((Y[:3, :5], X), ValueError, r"output_embedding: expected shape \(9, 5\), got \(3, 5\)"),
    ((X, X.astype("f")), TypeError, "output_embedding: expected float32 like the inputs"),
    ((X, X.astype("e")), TypeError, "input_embedding: expected float32 or float64, got float16"),
    ((X, X, Graph([0], [0])), TypeError, "graph: expected what make_csc or make_bipartite_csc"),
    ((X, X, plain, AggOp.Max, X), TypeError, "output_extrema_location: expected int32 or int64"),
    ((X, X, plain, AggOp.Max, INTEGERS[:3]), ValueError, "output_extrema_location: expected shap"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), REFUSED)
def test_refusals(arguments, kind, text):
    graph = [] if len(arguments) > 2 else [plain]
    given = [
        there(a) if isinstance(a, np.ndarray) else a(there) if a is plain else a
        for a in (*arguments, *graph)
    ]
    with pytest.raises(kind, match=f"^agg_simple_n2n_fwd: {text}"):
        operators.agg_simple_n2n_fwd(*given)


@without_device
def test_outputs_that_meet():
    """Overlapping outputs are refused as on the host; adjacent columns are accepted."""
    graph, wide, weight = plain(there), there(Y), there(np.ones(40))
    call, mean = operators.agg_weighted_n2n_fwd, (AggOp.Mean, None)
    call(wide[:, :5], there(X), weight, graph, *mean, wide[:, 5])
    with pytest.raises(ValueError, match="node_degree: expected memory of its own, got some of ou"):
        call(wide[:, :5], there(X), weight, graph, *mean, wide[:, 4])
    flat = np.broadcast_to(np.zeros((NODES, 1)), (NODES, 5)).view(strict.Strict)
    with pytest.raises(ValueError, match="output_embedding: expected distinct elements"):
        call(flat, there(X), weight, graph)


def test_index_arrays_are_told_apart(platform):
    """Index arrays are identified by address on a device, by contents on the host."""
    case = next(c for c in CASES if c.call is dimenet.agg_edge_to_edge_fwd)
    arrays = {n: a for n, a in case.given.items() if n not in INDICES}
    packed = {n: case.given[n] for n in INDICES & case.given.keys()}
    src, dst = packed["coo_idx"]

    def run(coo, move):
        index = packed | {"coo_idx": coo, "output_embedding": np.zeros((40, 8))}
        index = {n: move(a) if n != "coo_idx" else a for n, a in index.items()}
        case.call(**index, **{n: move(a) for n, a in arrays.items()})
        return {"output_embedding": index["output_embedding"]}

    others = np.stack([src[::-1], dst])
    for place in there, np.array:
        first, second = place(packed["coo_idx"]), place(others)
        for coo, same in (first, packed["coo_idx"]), (second, others), (first, packed["coo_idx"]):
            assert_equal(run(coo, there), run(same, lambda a: a))
    changed = np.array(others)
    run(changed, there)
    changed[:] = packed["coo_idx"]
    assert_equal(run(changed, there), case.run())
    assert len(_index_cache._cache) <= _index_cache.MOST


@without_device
def test_the_last_index_arrays_are_kept(platform):
    case = next(c for c in CASES if c.call is operators.agg_dmpnn_e2e_fwd)
    for _ in range(_index_cache.MOST + 5):
        case.run(there)
    assert len(_index_cache._cache) == _index_cache.MOST
    for (_, where, number, (address, *_)), entry in _index_cache._cache.items():
        (array,) = entry["arrays"]
        assert (where, number) == (platform, 0)
        assert platform.address(array) == address
