"""Invalid graphs are refused with the right error and message."""

import re

import numpy as np
import pytest

from pyops import Graph

TYPES = {
    "float": [0.0, 1.0],
    "boolean": [True, False],
    "complex": [0j, 1j],
    "object": np.array([0, 1], object),
    "string": ["0", "1"],
    "nothing": None,
    "small integers": np.array([0, 1], np.int16),
    "unsigned": np.array([0, 1], np.uint32),
    "unsigned long": np.array([0, 1], np.uint64),
    "empty floats": np.array([]),
    "times": np.array([0, 1], "m8[s]"),
}
VECTORS = {"number": 0, "row": [[0, 1]], "column": [[0], [1]], "matrix": np.eye(2, dtype=int)}
COUNTS = [
    (2.0, TypeError, "expected an integer, got 2.0"),
    ("2", TypeError, "expected an integer, got '2'"),
    (True, TypeError, "expected an integer, got True"),
    (np.timedelta64(1, "s"), TypeError, "expected an integer, got np.timedelta64(1,'s')"),
    (-1, ValueError, "expected at least 0, got -1"),
    (2**31 - 1, OverflowError, "expected at most 2147483646, got 2147483647"),
    (2**40, OverflowError, "expected at most 2147483646, got 1099511627776"),
]
CSC = {"offsets": [0, 1, 2], "indices": [0, 1], "num_src": 2, "edge_ids": [0, 1]}
good = [0, 1]


@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize("values", TYPES.values(), ids=TYPES)
def test_types_of_edges(values, name):
    with pytest.raises(TypeError, match=f"^Graph: {name}: expected int32 or int64, got"):
        Graph(**{"src": good, "dst": good, name: values})


@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize("values", VECTORS.values(), ids=VECTORS)
def test_ranks_of_edges(values, name):
    with pytest.raises(ValueError, match=rf"^Graph: {name}: expected one dimension, got shape \("):
        Graph(**{"src": good, "dst": good, name: values})


@pytest.mark.parametrize("name", ["offsets", "indices", "edge_ids"])
@pytest.mark.parametrize("values", TYPES.values(), ids=TYPES)
def test_types_of_csc(values, name):
    if values is None and name == "edge_ids":
        return
    with pytest.raises(TypeError, match=f"^Graph.from_csc: {name}: expected int32 or int64, got"):
        Graph.from_csc(**{**CSC, name: values})


@pytest.mark.parametrize("name", ["offsets", "indices", "edge_ids"])
@pytest.mark.parametrize("values", VECTORS.values(), ids=VECTORS)
def test_ranks_of_csc(values, name):
    with pytest.raises(ValueError, match=f"^Graph.from_csc: {name}: expected one dimension, got"):
        Graph.from_csc(**{**CSC, name: values})


@pytest.mark.parametrize("name", ["src", "dst"])
def test_masked_arrays(name):
    """Masked arrays are refused: the mask would be lost."""
    values = np.ma.array([0, 1], mask=[False, True])
    with pytest.raises(TypeError, match=f"^Graph: {name}: expected .*, got .*MaskedArray"):
        Graph(**{"src": good, "dst": good, name: values})


@pytest.mark.parametrize("name", ["num_src", "num_dst"])
@pytest.mark.parametrize(("value", "error", "message"), COUNTS)
def test_numbers_of_nodes(name, value, error, message):
    with pytest.raises(error, match=f"^Graph: {name}: {re.escape(message)}"):
        Graph(good, good, **{"num_src": 2, "num_dst": 2, name: value})


@pytest.mark.parametrize(("value", "error", "message"), COUNTS)
def test_number_of_sources_of_csc(value, error, message):
    with pytest.raises(error, match=f"^Graph.from_csc: num_src: {re.escape(message)}"):
        Graph.from_csc([0, 2], good, value)


@pytest.mark.parametrize(
    ("src", "dst", "sizes", "error", "message"),
    [
        ([0, 1], [0], (), ValueError, "src and dst: expected equal lengths, got 2 and 1"),
        ([0, 5, 1], [0, 0, 0], (5,), IndexError, "src: expected .* num_src-1=4, got 5 at 1"),
        ([0, 1, 1], [0, 0, 7], (5,), IndexError, "dst: expected .* num_dst-1=4, got 7 at 2"),
        ([0, -1], [0, 0], (), IndexError, "src: expected .* num_src-1=0, got -1 at 1"),
        ([0, 1], [-3, 0], (4,), IndexError, "dst: expected .* num_dst-1=3, got -3 at 0"),
        ([0, 2**32 + 1], [0, 0], (5,), IndexError, "got 4294967297 at 1"),
        ([0, 2**31], [0, 0], (), OverflowError, "num_src: expected at most .*, got 2147483649"),
        ([0, 0], [0, 2**62], (), OverflowError, "num_src: expected at most .*, got 46"),
        ([0], [0], (0,), IndexError, "src: expected indices from 0 to num_src-1=-1, got 0 at 0"),
        ([0, 1], [0, 2], (2, 2), IndexError, "dst: expected .* num_dst-1=1, got 2 at 1"),
    ],
)
def test_edges(src, dst, sizes, error, message):
    with pytest.raises(error, match=f"^Graph: .*{message}"):
        Graph(src, dst, *sizes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"offsets": []}, ValueError, "offsets: expected the first to be 0 .* got none"),
        ({"offsets": [1, 1, 2]}, ValueError, "offsets: expected the first to be 0 .* got 1 and 2"),
        ({"offsets": [0, 1, 3]}, ValueError, r"the last to be len\(indices\)=2, got 0 and 3"),
        ({"offsets": [0, 1]}, ValueError, r"the last to be len\(indices\)=2, got 0 and 1"),
        ({"offsets": [0, 2, 1, 2]}, ValueError, "expected no decrease, got 2 before 1 at 2"),
        ({"offsets": [0, -1, 2]}, ValueError, "expected no decrease, got 0 before -1 at 1"),
        ({"offsets": [0, 2**62, 2]}, ValueError, "expected no decrease, got 4611686018427387904"),
        ({"indices": [0, 2]}, IndexError, "indices: expected .* num_src-1=1, got 2 at 1"),
        ({"indices": [-1, 0]}, IndexError, "indices: expected indices from 0 .* got -1 at 0"),
        ({"indices": [0, 2**32]}, IndexError, "indices: expected .* got 4294967296 at 1"),
        ({"edge_ids": [0]}, ValueError, r"edge_ids: expected length len\(indices\)=2, got 1"),
        ({"edge_ids": [0, -1]}, IndexError, "edge_ids: expected indices from 0 .* got -1 at 1"),
        ({"num_edges": 1}, IndexError, "edge_ids: expected .* num_edges-1=0, got 1 at 1"),
        ({"num_edges": -1}, ValueError, "num_edges: expected at least 0, got -1"),
        ({"num_edges": 2.0}, TypeError, r"num_edges: expected an integer, got 2\.0"),
        ({"num_edges": 2**63}, OverflowError, "num_edges: expected at most"),
        (
            {"edge_ids": None, "num_edges": 3},
            ValueError,
            r"num_edges: expected len\(indices\)=2 without edge_ids, got 3",
        ),
    ],
)
def test_csc(changes, error, message):
    with pytest.raises(error, match=f"^Graph.from_csc: .*{message}"):
        Graph.from_csc(**{**CSC, **changes})


def test_offsets_whose_difference_overflows():
    offsets = np.array([0, 2**31 - 1, -(2**31), -1, 0], np.int32)
    with pytest.raises(ValueError, match=r"offsets: expected no decrease"):
        Graph.from_csc(offsets, [], 1)


def test_edge_ids_beyond_any_memory():
    with pytest.raises(OverflowError, match=r"num_edges: expected at most"):
        Graph.from_csc([0, 1], [0], 1, edge_ids=[2**63 - 1])


def test_indices_beyond_int64():
    with pytest.raises(OverflowError, match=r"src: expected indices that fit int64"):
        Graph([2**70], [0])


def test_initialised_once():
    graph = Graph([0], [1])
    with pytest.raises(AttributeError, match="immutable"):
        graph.__init__([1], [0])
    with pytest.raises(ValueError, match="WRITEABLE"):
        graph.src.flags.writeable = True
