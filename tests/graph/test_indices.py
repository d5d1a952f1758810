"""Every argument that is an array of indices refuses other values, in every front end."""

from collections import UserList, deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import pyops
from pyops import Graph
from pyops._call.operator import OPERATORS
from pyops.compat.pylibcugraphops import (
    dimenet,
    make_bipartite_csc,
    make_bipartite_csc_hg,
    make_csc,
    make_csc_hg,
    operators,
)

from ..support.cases import variants

COUNT = 4
LOSSY = {
    "fractions": [Fraction(3, 2)] * COUNT,
    "whole fractions": [Fraction(1)] * COUNT,
    "decimals": [Decimal("1.9")] * COUNT,
    "texts": ["1"] * COUNT,
    "floats": [1.9] * COUNT,
    "floats and integers": [0, 1, 2, 1.5],
    "flags": [True] * COUNT,
    "flags and integers": [0, True, 2, np.True_],
    "nothing": [0, 1, None, 1],
    "complex numbers": [1j] * COUNT,
    "objects": np.array([0, 1, 2, 1], object),
    "bytes": [b"1"] * COUNT,
    "queue with a flag": deque([0, True, 2, 1]),
    "wrapped list with a flag": UserList([0, 1, 2, np.True_]),
    "arrays with a flag": [np.array(0), np.array(True), np.array(2), np.array(1)],
    "rows with a flag": [[0, 1], [2, True]],
    "array of flags in a list": [np.array([0, 1]), np.array([True, False])],
    "rows of different lengths": [[0], [1, 2]],
    "masked element": [0, 1, 2, np.ma.array(1, mask=True)],
}


class Column(list):
    """Column of a table: becomes an object array only in `__array__`."""

    def __array__(self, dtype=None, copy=None):
        return np.array([*self], object).astype(dtype or object)


LOSSY |= {
    f"column of {n}": Column(v)
    for n, v in LOSSY.items()
    if n not in ("nothing", "objects", "masked element")
}
LOSSY |= {f"one of {n}": v[0] for n, v in LOSSY.items() if n in ("fractions", "decimals", "texts")}
GOOD = np.array([0, 1, 2, 1])
OFFSETS = np.array([0, 1, 2, 4])
PAIRS = np.array([[0, 1, 2], [1, 2, 0]])
MASKED = {
    "array": np.ma.array(GOOD, mask=[0, 0, 0, 1]),
    "arrays in a list": [np.ma.array(GOOD, mask=[0, 0, 0, 1])] * 2,
    "column": Column([0, 1, 2, np.ma.array(1, mask=True)]),
}
TOO_LARGE = {
    "by a bit": [0, 1, 2, 2**63],
    "unsigned": [2**63] * COUNT,
    "negative": [0, 1, 2, -(2**70)],
    "queue": deque([0, 1, 2, 2**63]),
}


def with_rows(name, module=pyops, convert=np.asarray):
    """Return an operator of a front end as a function of its option of row indices."""
    case = next(c for c in variants(OPERATORS[name]) if "image" in dict(c.choices).values())
    problem = case.problem(Graph([0, 1, 2, 3], [1, 0, 3, 2]))
    (option,) = problem.op.signature.indexed
    graph, *arrays = problem.arguments("forward")
    arrays = [None if a is None else convert(a) for a in arrays]
    function = getattr(module, name)
    return lambda values: function(graph, *arrays, **{**problem.options, option: values})


def with_graph(function, rows=3):
    """Return a low-level call of pylibcugraphops on a graph of three edges."""
    x, graph = np.ones((rows, 1)), make_csc([0, 1, 2, 3], [1, 2, 0])
    return lambda *values: function(np.zeros_like(x), x, graph, *values)


def on_edges(coo_idx=PAIRS, offsets=(0, 1, 2, 3), order=(2, 0, 1)):
    """Return a sum over the incoming edges of edges, given in both orders by the caller."""
    arrays = (np.ones(shape) for shape in ((3, 4), (3, 3), (3, 42), (3, 4), (46, 4)))
    return dimenet.agg_edge_to_edge_fwd(*arrays, coo_idx, offsets, order)


def back(coo_idx=PAIRS, offsets=(0, 1, 2, 3)):
    outs = (np.ones(shape) for shape in ((3, 42), (3, 4), (46, 4)))
    arrays = (np.ones(shape) for shape in ((3, 3), (3, 42), (3, 4), (3, 4), (46, 4)))
    return dimenet.agg_edge_to_edge_bwd(*outs, *arrays, coo_idx, offsets)


def partial(indices=(1, 2, 3), adj_ja=((1, 1), (2, 2))):
    arrays = (np.ones((2, 1)) for _ in range(3))
    return pyops.partials.get_partial_gno_aggregate_features_val(*arrays, indices, adj_ja)


def with_types(make, **given):
    types = {"n_node_types": 3, "n_edge_types": 3, "node_types": None, "edge_types": GOOD[:3]}
    return make(**{"offsets": [0, 1, 2, 3], "indices": GOOD[:3], **types, **given})


def located(values):
    graph = make_csc([0, 1, 2, 3], [1, 2, 0])
    return operators.agg_simple_n2n_bwd(
        np.zeros((3, 1)), np.ones((3, 1)), graph, operators.AggOp.Max, values
    )


INDEXED = [name for name, op in OPERATORS.items() if op.signature.indexed]
ARGUMENTS = {
    "Graph: src": lambda values: Graph(values, GOOD),
    "Graph: dst": lambda values: Graph(GOOD, values),
    "Graph.from_csc: offsets": lambda values: Graph.from_csc(values, GOOD, 3),
    "Graph.from_csc: indices": lambda values: Graph.from_csc(OFFSETS, values, 3),
    "Graph.from_csc: edge_ids": lambda values: Graph.from_csc(OFFSETS, GOOD, 3, values),
    "Graph.with_edge_ids: edge_ids": Graph(GOOD, GOOD).with_edge_ids,
    "radius_graph: batch": lambda values: pyops.radius_graph(np.eye(COUNT, 3), 1.0, batch=values),
    "make_bipartite_csc: offsets": lambda values: make_bipartite_csc(values, GOOD, 3),
    "make_bipartite_csc: indices": lambda values: make_bipartite_csc(OFFSETS, values, 3),
    "make_bipartite_csc: map_csc_to_coo": lambda v: make_bipartite_csc(OFFSETS, GOOD, 3, v),
    "make_csc: offsets": lambda values: make_csc(values, GOOD),
    "agg_dmpnn_e2e_fwd: rev_edge_ids": with_graph(operators.agg_dmpnn_e2e_fwd),
    "agg_simple_n2n_bwd: output_extrema_location": located,
    "agg_edge_to_edge_fwd: coo_idx": on_edges,
    "agg_edge_to_edge_fwd: dst_offsets": lambda values: on_edges(offsets=values),
    "agg_edge_to_edge_fwd: dst_edge_index": lambda values: on_edges(order=values),
    "agg_edge_to_edge_bwd: coo_idx": back,
    "agg_edge_to_edge_bwd: src_offsets": lambda values: back(offsets=values),
    "get_partial_gno_aggregate_features_val: indices": partial,
    "get_partial_gno_aggregate_features_val: adj_ja": lambda values: partial(adj_ja=values),
    **{
        f"{make.__name__}: {name}": lambda values, make=make, name=name: with_types(
            make, **{name: values}
        )
        for make in (make_csc_hg, make_bipartite_csc_hg)
        for name in ("offsets", "indices", "node_types", "edge_types", "map_csc_to_coo")
    },
    **{f"{name}: reverse": with_rows(name) for name in INDEXED},
}


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("values", LOSSY.values(), ids=LOSSY)
def test_nothing_is_truncated(values, argument):
    with pytest.raises(TypeError, match=rf"^{argument}: expected int32 or int64, got"):
        ARGUMENTS[argument](values)


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("values", MASKED.values(), ids=MASKED)
def test_no_mask_is_lost(values, argument):
    with pytest.raises(TypeError, match=rf"^{argument}: expected a plain array, got a MaskedArray"):
        ARGUMENTS[argument](values)


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("values", TOO_LARGE.values(), ids=TOO_LARGE)
def test_too_large_for_int64(values, argument):
    with pytest.raises(OverflowError, match=rf"^{argument}: expected indices that fit int64, got"):
        ARGUMENTS[argument](values)


def test_arguments_that_fit():
    """The calls of the table accept valid indices, so that only the values are refused."""
    on_edges(), back(), partial(), located([[0], [1], [2]])
    with_types(make_csc_hg), with_types(make_bipartite_csc_hg)


INTEGERS = {
    "list": [*map(int, GOOD)],
    "tuple of scalars": (*GOOD,),
    "int32": GOOD.astype(np.int32),
    "other byte order": GOOD.astype(">i8"),
    "queue": deque(map(int, GOOD)),
    "arrays": [*map(np.array, GOOD)],
    "column": Column(map(int, GOOD)),
    "column of scalars": Column(GOOD),
}


@pytest.mark.parametrize("values", INTEGERS.values(), ids=INTEGERS)
def test_integers_are_taken(values):
    np.testing.assert_array_equal(Graph(values, GOOD).src, GOOD)
    np.testing.assert_array_equal(Graph(GOOD, values).dst, GOOD)
    np.testing.assert_array_equal(Graph(GOOD, GOOD).with_edge_ids(values).edge_ids, GOOD)


def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"src": [*GOOD], "kind": ["1", "0", "1", "1"], "part": [1.9] * COUNT})
    np.testing.assert_array_equal(Graph(table.src.astype(object), table.src).src, GOOD)
    np.testing.assert_array_equal(Graph(table.src.astype("category"), table.src).src, GOOD)
    np.testing.assert_array_equal(Graph(table.src.astype("Int64"), table.src).src, GOOD)
    missing = table.src.astype("Int64").where(table.src > 0)
    for column in table.kind, table.part, missing, missing.astype(object):
        for kind in (object, "category") if column is not missing else ("Int64",):
            with pytest.raises(TypeError, match="src: expected int32 or int64, got"):
                Graph(column.astype(kind), table.src)
