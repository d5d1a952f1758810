"""Graphs from and to the forms of other libraries, and their equality."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import pyops
from pyops import Graph

from ..support.graphs import GRAPHS, drawn

sparse = pytest.importorskip("scipy.sparse")


def pairs(graph):
    return [*zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]


@pytest.mark.parametrize("make", [np.array, list, tuple], ids=["array", "list", "tuple"])
def test_from_edge_index(make):
    graph = Graph.from_edge_index(make([[0, 2, 2], [1, 0, 1]]), 4)
    assert graph == Graph([0, 2, 2], [1, 0, 1], 4, 4)
    assert Graph.from_edge_index(np.empty((2, 0), np.int64), 3, 2) == Graph([], [], 3, 2)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_sums_over_a_sparse_matrix(kind, form):
    matrix = kind(sparse.random(7, 5, density=0.4, random_state=3)).asformat(form)
    graph, x = Graph.from_scipy(matrix), np.random.default_rng(0).standard_normal((5, 3))
    assert (graph.num_dst, graph.num_src) == matrix.shape
    y = pyops.aggregate(graph, x, weight=matrix.tocsr().data)
    np.testing.assert_allclose(y, matrix @ x, rtol=1e-14)


@pytest.mark.parametrize("name", GRAPHS)
def test_to_scipy(name):
    graph = GRAPHS[name]()
    values = np.random.default_rng(1).standard_normal(graph.num_edges)
    expected = np.zeros((graph.num_dst, graph.num_src))
    np.add.at(expected, (graph.dst, graph.src), values[graph.edge_ids])
    np.testing.assert_allclose(graph.to_scipy(values).toarray(), expected, atol=1e-14)
    assert graph.to_scipy().nnz == graph.num_entries


def test_there_and_back():
    graph = drawn(6, 9, 30)
    again = Graph.from_scipy(graph.to_scipy())
    assert sorted(pairs(again)) == sorted(pairs(graph))
    assert again.to_scipy().shape == (9, 6)


TRIANGLES, QUADRILATERALS = np.array([[0, 1, 2], [2, 1, 3]]), np.array([[1, 4, 5, 3]])
MESHES = {
    "array": TRIANGLES,
    "list": TRIANGLES.tolist(),
    "blocks": [TRIANGLES, QUADRILATERALS],
    "lists": [TRIANGLES.tolist(), QUADRILATERALS.tolist()],
    "meshio": SimpleNamespace(
        cells=[SimpleNamespace(data=TRIANGLES), SimpleNamespace(data=QUADRILATERALS)]
    ),
}


@pytest.mark.parametrize("name", MESHES)
def test_from_cells(name):
    graph = Graph.from_cells(MESHES[name])
    cells = [*TRIANGLES] if name in ("array", "list") else [*TRIANGLES, *QUADRILATERALS]
    expected = sorted({(int(b), int(a)) for cell in cells for a in cell for b in cell if a != b})
    assert [(dst, src) for src, dst in pairs(graph)] == expected
    assert graph.num_dst == graph.num_src == 1 + max(map(max, cells))


def test_cells_of_fewer_nodes_than_named():
    assert Graph.from_cells(TRIANGLES, 9).num_src == 9
    assert Graph.from_cells([], 3) == Graph([], [], 3)
    assert pairs(Graph.from_cells([[1, 1, 0]])) == [(1, 0), (0, 1)]


REFUSED = [
    (Graph.from_edge_index, np.zeros((3, 5), int), ValueError, r"edge_index: expected shape \(2, "),
    (Graph.from_edge_index, [0, 1], ValueError, "edge_index: expected shape"),
    (Graph.from_edge_index, [[0.5], [1]], TypeError, r"edge_index\[0\]"),
    (Graph.from_edge_index, [[-1], [1]], IndexError, "src"),
    (Graph.from_scipy, np.eye(3), TypeError, "expected a sparse matrix or array of SciPy, got nda"),
    (Graph.from_cells, 3, TypeError, "cells: expected arrays of nodes, got int"),
    (Graph.from_cells, [[0, 1], [2]], ValueError, r"cells\[0\]: expected cells of as many nodes"),
    (Graph.from_cells, np.arange(3), ValueError, r"cells\[0\]: expected shape"),
    (Graph.from_cells, np.arange(84).reshape(3, 28), ValueError, "pass the transpose"),
    (Graph.from_cells, [[0, -1]], IndexError, r"cells\[0\]: expected nodes >= 0, got -1"),
    (Graph.from_cells, [[0.0, 1.0]], TypeError, r"cells\[0\]"),
    (Graph.from_cells, [[0, 2**40]], OverflowError, r"cells\[0\]: expected nodes below"),
    (lambda n: Graph.from_cells([[0, 5]], n), 3, IndexError, "num_src"),
    (drawn(3, 3, 4).to_scipy, np.ones(3), ValueError, r"values: expected shape .* \(4,\), got"),
]


@pytest.mark.parametrize(("call", "argument", "error", "message"), REFUSED)
def test_refusals(call, argument, error, message):
    with pytest.raises(error, match=message):
        call(argument)


@pytest.mark.parametrize("name", GRAPHS)
def test_equality(name):
    graph, same = GRAPHS[name](), GRAPHS[name]()
    assert graph == same == pickle.loads(pickle.dumps(graph))
    assert hash(graph) == hash(same)
    assert len({graph, same}) == 1
    assert graph != Graph(graph.src, graph.dst, graph.num_src + 1, graph.num_dst + 1)
    assert graph != "graph"
    if graph.num_entries > 1 and len({*pairs(graph)}) > 1:
        order = np.argsort(graph.src, kind="stable")[::-1]
        assert graph != Graph(graph.src[order], graph.dst[order], graph.num_src, graph.num_dst)


def test_edge_ids_count_in_equality():
    graph = drawn(5, 5, 12)
    assert graph.with_edge_ids(np.arange(12)) == graph
    assert graph.with_edge_ids(np.arange(12)[::-1]) != graph


def test_html():
    assert Graph([0, 1, 1], [1, 0, 0])._repr_html_().count("<tr>") == 4
    assert "at most 2" in Graph([0, 1, 1], [1, 0, 0])._repr_html_()
    assert Graph([], [], 0)._repr_html_()
