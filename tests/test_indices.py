"""Every argument that is an array of indices, in every front end, refuses what is none."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import pyops
from pyops import Graph
from pyops._operator import OPERATORS
from pyops.compat.pylibcugraphops import make_bipartite_csc

from .cases import variants

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
}


class Column(list):
    """A column of a table: an array of objects only when NumPy asks for it."""

    def __array__(self, dtype=None, copy=None):
        return np.array([*self], object).astype(dtype or object)


LOSSY |= {f"column of {n}": Column(v) for n, v in LOSSY.items() if n not in ("nothing", "objects")}
LOSSY |= {f"one of {n}": v[0] for n, v in LOSSY.items() if n in ("fractions", "decimals", "texts")}
GOOD = np.array([0, 1, 2, 1])
OFFSETS = np.array([0, 1, 2, 4])


def with_rows(name, module=pyops, convert=np.asarray):
    """An operator of a front end as a function of the row numbers that one of its options takes."""
    case = next(c for c in variants(OPERATORS[name]) if "image" in dict(c.choices).values())
    problem = case.problem(Graph([0, 1, 2, 3], [1, 0, 3, 2]))
    (option,) = problem.op.signature.indexed
    graph, *arrays = problem.arguments("forward")
    arrays = [None if a is None else convert(a) for a in arrays]
    function = getattr(module, name)
    return lambda values: function(graph, *arrays, **{**problem.options, option: values})


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
    **{f"{name}: reverse": with_rows(name) for name in INDEXED},
}


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("values", LOSSY.values(), ids=LOSSY)
def test_nothing_is_truncated(values, argument):
    with pytest.raises(TypeError, match=rf"^{argument}: expected int32 or int64, got"):
        ARGUMENTS[argument](values)


INTEGERS = {
    "list": [*map(int, GOOD)],
    "tuple of scalars": (*GOOD,),
    "int32": GOOD.astype(np.int32),
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
