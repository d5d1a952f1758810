"""Attributes and indices of graphs."""

import copy
import pickle
import time

import numpy as np
import pytest

import pyops
from pyops import Graph
from pyops._call.operator import OPERATORS

from ..support.cases import PHASES, VARIANTS
from ..support.compare import assert_same
from ..support.graphs import GRAPHS, drawn, undirected
from ..support.layouts import LAYOUTS

every_graph = pytest.mark.parametrize("name", GRAPHS)


def pickled(protocol):
    return lambda graph: pickle.loads(pickle.dumps(graph, protocol))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("make", [np.array, LAYOUTS["strided"], LAYOUTS["byte-swapped"]])
def test_from_edges(make, dtype):
    src, dst = (make(np.array(ends, dtype)) for ends in ([3, 0, 3, 1], [1, 1, 0, 1]))
    graph = Graph(src, dst, 5, 2)
    assert (graph.num_src, graph.num_dst) == (5, 2)
    assert (graph.num_edges, graph.num_entries) == (4, 4)
    assert graph.src.tolist() == [3, 0, 3, 1]
    assert graph.dst.tolist() == [1, 1, 0, 1]
    assert graph.edge_ids.tolist() == [0, 1, 2, 3]
    assert graph.in_degrees().tolist() == [1, 3]
    assert repr(graph) == "Graph(num_src=5, num_dst=2, num_edges=4)"


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_from_csc(dtype):
    offsets, indices, ids = (
        np.array(a, dtype) for a in ([0, 2, 2, 5], [1, 0, 3, 3, 1], [2, 0, 2, 5, 0])
    )
    graph = Graph.from_csc(offsets, indices, 4)
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (4, 3, 5)
    assert graph.src.tolist() == [1, 0, 3, 3, 1]
    assert graph.dst.tolist() == [0, 0, 2, 2, 2]
    assert graph.edge_ids.tolist() == [0, 1, 2, 3, 4]
    graph = Graph.from_csc(offsets, indices, 4, ids)
    assert (graph.num_edges, graph.num_entries) == (6, 5)
    assert graph.edge_ids.tolist() == [2, 0, 2, 5, 0]
    assert repr(graph) == "Graph(num_src=4, num_dst=3, num_edges=6, num_entries=5)"
    assert Graph.from_csc(offsets, indices, 4, ids, 8).num_edges == 8


def test_default_sizes():
    assert (Graph([0, 4], [2, 1]).num_src, Graph([0, 4], [2, 1]).num_dst) == (5, 5)
    assert (Graph([0], [2]).num_src, Graph([0], [2]).num_dst) == (3, 3)
    assert (Graph([0], [2], 7).num_src, Graph([0], [2], 7).num_dst) == (7, 7)
    assert (Graph([0], [2], num_dst=6).num_src, Graph([0], [2], num_dst=6).num_dst) == (6, 6)
    assert (Graph([], []).num_src, Graph([], []).num_dst) == (0, 0)


@every_graph
def test_degrees_and_reverse(name):
    graph = GRAPHS[name]()
    degrees = graph.in_degrees()
    assert degrees.dtype == np.int64
    assert degrees.tolist() == np.bincount(graph.dst, minlength=graph.num_dst).tolist()
    turned = graph.reverse()
    assert (turned.num_src, turned.num_dst) == (graph.num_dst, graph.num_src)
    assert (turned.num_edges, turned.num_entries) == (graph.num_edges, graph.num_entries)
    for a, b in (turned.src, graph.dst), (turned.dst, graph.src), (turned.edge_ids, graph.edge_ids):
        assert a.tolist() == b.tolist()
    assert turned.in_degrees().tolist() == np.bincount(graph.src, minlength=graph.num_src).tolist()


PARTS = ("kind", "src", "dst", "edge_ids", "num_src", "num_dst", "num_edges")


@pytest.mark.parametrize(
    ("part", "value", "error", "message"),
    [
        ("dst", [1, 2], ValueError, r"dst: expected len\(src\)=3, got 2"),
        ("edge_ids", [0, 1], ValueError, r"edge_ids: expected len\(src\)=3, got 2"),
        ("num_edges", 4, ValueError, r"num_edges: expected len\(src\)=3, got 4"),
        ("src", [0.0, 1.0, 2.0], TypeError, "src: expected int32 or int64, got float64"),
        ("dst", [0, 1, 3], IndexError, "dst: expected indices from 0 to num_dst-1=2, got 3"),
    ],
)
def test_parts_of_a_pickle_are_checked(part, value, error, message):
    restore, parts = pyops.Graph([0, 1, 2], [1, 2, 0]).__reduce__()
    wrong = dict(zip(PARTS, parts, strict=True))
    wrong[part] = np.asarray(value)[()]
    with pytest.raises(error, match=f"^Graph: {message}"):
        restore(*wrong.values())


@pytest.mark.parametrize("restore", [copy.copy, copy.deepcopy, pickled(2), pickled(5)])
@every_graph
def test_copies(name, restore):
    graph = GRAPHS[name]()
    for before in (graph, graph.reverse()):
        after = restore(before)
        assert repr(after) == repr(before)
        for field in "src", "dst", "edge_ids":
            assert_same([getattr(after, field)], [getattr(before, field)])


@pytest.mark.parametrize(
    "case", [c for c in VARIANTS if OPERATORS[c.op].signature.has_graph], ids=str
)
def test_pickled_graphs_give_the_same_bits(case):
    problem = case.problem(undirected([(0, 1), (2, 0), (1, 1)], 4))
    results = [problem.run(phase) for phase in PHASES]
    again = case.problem(pickle.loads(pickle.dumps(problem.graph)))
    for phase, result in zip(PHASES, results, strict=True):
        assert_same(again.run(phase), result)


def test_immutable():
    src = np.array([0, 1])
    graph = Graph(src, src)
    src[0] = 1
    assert graph.src.tolist() == [0, 1]
    for name in "num_src", "src", "_src", "colour":
        with pytest.raises(AttributeError, match=name):
            setattr(graph, name, 3)
    with pytest.raises(AttributeError, match="num_src"):
        del graph.num_src
    for array in graph.src, graph.dst, graph.edge_ids:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_index_types_give_the_same_bits(rng):
    src, dst = rng.integers(0, 9, (2, 40))
    one, other = (Graph(src.astype(t), dst.astype(t), 9) for t in (np.int32, np.int64))
    features, kappa = rng.standard_normal((9, 3)), rng.standard_normal((40, 12))
    assert_same(*([pyops.gno_aggregate(g, features, kappa)] for g in (one, other)))


ENDS = {
    "few rows": lambda rng: (rng.integers(0, 40, 60_000), 40),
    "nearly as many rows as entries": lambda rng: (rng.integers(0, 50_000, 60_000), 50_000),
    "sorted": lambda rng: (np.sort(rng.integers(0, 300, 60_000)), 301),
    "sorted but for the middle": lambda rng: (np.arange(60_000) % 30_000, 30_000),
    "sorted but for the last": lambda rng: (np.append(np.arange(59_999) // 9, 3), 7000),
}


@pytest.mark.parametrize("name", ENDS)
def test_packed_by_any_number_of_threads(name, rng):
    dst, rows = ENDS[name](rng)
    src = rng.integers(0, 9, len(dst))
    order = np.argsort(dst, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=rows))])
    for threads in 1, 2, 5:
        pyops.set_num_threads(threads)
        graph = Graph(src, dst, 9, rows)
        found = [graph._index(f"in_{what}") for what in ("offsets", "order", "nodes", "edges")]
        assert_same(found, [offsets + 1, order + 1, (src[order] + 1).astype(np.int32), order + 1])


def test_nothing_is_packed_that_is_not_read(rng):
    graph = Graph(rng.integers(0, 5, 40), rng.integers(0, 6, 40), 5, 6)
    edge, gy = rng.standard_normal((40, 3)), rng.standard_normal((6, 3))
    pyops.aggregate.backward(graph, None, edge, None, None, gy)
    pyops.segment_softmax.backward(graph, edge, edge)
    assert {name.partition("_")[0] for name in graph._packed} == {"in"}
    pyops.aggregate.backward(graph, rng.standard_normal((5, 3)), None, None, None, gy)
    assert "out_nodes" in graph._packed


def test_packing_takes_linear_time():
    """Uses graphs beyond cache sizes, and processor time, which other programs do not affect."""

    def seconds(entries):
        graph = drawn(10**6, 10**6, entries)
        start = time.process_time()
        graph.in_degrees()
        graph.reverse().in_degrees()
        return time.process_time() - start

    small, large = (min(seconds(entries) for _ in range(3)) for entries in (10**7 // 4, 10**7))
    assert large < 20
    assert large < 12 * small  # quadratic time would be 16 times as much
