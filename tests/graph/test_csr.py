"""Graphs packed without Python, as from C and Fortran."""

import ctypes

import numpy as np
import pytest

import pyops
import pyops.__main__

INT64 = ctypes.c_int64
LIBRARY = ctypes.CDLL(str(pyops.__main__.library()))


def address(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def pack_edges(sizes, base, row, node, edge=None):
    """Return offsets, nodes, edges, the position of an invalid entry and the status."""
    arrays = [np.array(a, np.int32) for a in (row, node)]
    arrays.append(None if edge is None else np.array(edge, np.int64))
    offsets, edges = np.empty(max(sizes[0], 0) + 1, np.int64), np.empty(len(row), np.int64)
    nodes = np.empty(len(row), np.int32)
    wrong, status = INT64(), ctypes.c_int32()
    LIBRARY.pyops_pack_edges(
        *map(INT64, (*sizes, len(row))),
        ctypes.c_int32(base),
        *map(address, [*arrays, offsets, nodes, edges]),
        ctypes.byref(wrong),
        ctypes.byref(status),
    )
    return offsets, nodes, edges, wrong.value, status.value


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("num_entries", [0, 1, 200])
def test_as_graph(rng, base, num_entries):
    src, dst = rng.integers(0, 12, num_entries), rng.integers(0, 9, num_entries)
    graph = pyops.Graph(src, dst, 12, 9)
    for side, sizes, row, node in ("in", (9, 12), dst, src), ("out", (12, 9), src, dst):
        *packed, wrong, status = pack_edges((*sizes, num_entries), base, row + base, node + base)
        assert (wrong, status) == (0, 0)
        for name, array in zip(("offsets", "nodes", "edges"), packed, strict=True):
            np.testing.assert_array_equal(array, graph._index(f"{side}_{name}"))


IDS = {
    "shared": lambda rng: rng.integers(0, 5, 40),
    "apart": lambda rng: rng.permutation(40),
}


@pytest.mark.parametrize("law", IDS)
@pytest.mark.parametrize("base", [0, 1])
def test_edges_with_ids(rng, base, law):
    """Several entries share an edge, or none do; the last edge has no entry."""
    src, dst = rng.integers(0, 5, (2, 40))
    ids = IDS[law](rng)
    num = ids.max() + 2
    offsets, nodes, edges, *_ = pack_edges((5, 5, num), base, dst + base, src + base, ids + base)
    order = np.argsort(dst, kind="stable")
    np.testing.assert_array_equal(nodes, src[order] + 1)
    np.testing.assert_array_equal(edges, ids[order] + 1)
    np.testing.assert_array_equal(np.diff(offsets), np.bincount(dst, minlength=5))
    id_offsets, id_entries = np.empty(num + 1, np.int64), np.empty(40, np.int64)
    shared, status = ctypes.c_int32(), ctypes.c_int32()
    LIBRARY.pyops_pack_ids(
        INT64(num),
        INT64(40),
        *map(address, (edges, id_offsets, id_entries)),
        ctypes.byref(shared),
        ctypes.byref(status),
    )
    assert (shared.value, status.value) == (len(np.unique(ids)) < 40, 0)
    np.testing.assert_array_equal(id_entries, np.argsort(edges, kind="stable") + 1)
    np.testing.assert_array_equal(np.diff(id_offsets), np.bincount(edges - 1, minlength=num))


@pytest.mark.parametrize(
    ("sizes", "base", "row", "node", "edge", "wrong"),
    [
        ((3, 4, 3), 0, [0, 3, 1], [0, 1, 2], None, 2),
        ((3, 4, 3), 0, [0, 2, 1], [0, 1, 4], None, 3),
        ((3, 4, 3), 0, [-1, 2, 1], [0, 1, 2], None, 1),
        ((3, 4, 3), 1, [1, 2, 0], [1, 1, 4], None, 3),
        ((3, 4, 3), 1, [1, 2, 3], [1, 5, 4], None, 2),
        ((3, 4, 2), 0, [0, 1, 2], [0, 1, 2], [0, 1, 2], 3),
        ((3, 4, 2), 1, [1, 2, 3], [1, 2, 3], [0, 1, 2], 1),
        ((3, 4, 2), 0, [0, 1, 2], [0, 1, 2], None, 0),
        ((-1, 4, 3), 0, [], [], None, 0),
        ((2, 2**31, 3), 0, [], [], None, 0),
    ],
)
def test_refused(sizes, base, row, node, edge, wrong):
    *_, entry, status = pack_edges(sizes, base, row, node, edge)
    assert (entry, status) == (wrong, -2)


def test_places(rng):
    src, dst = rng.integers(0, 12, 200), rng.integers(0, 9, 200)
    graph = pyops.Graph(src, dst, 12, 9)
    names, status = ("in_order", "in_entries", "out_entries"), ctypes.c_int32()
    packed = [np.empty(200, np.int64) for _ in names]
    ends = [np.array(a, np.int32) for a in (src, dst)]
    LIBRARY.pyops_pack_places(
        *map(INT64, (12, 9, 200)),
        ctypes.c_int32(0),
        *map(address, [*ends, *packed]),
        ctypes.byref(status),
    )
    assert status.value == 0
    for name, array in zip(names, packed, strict=True):
        np.testing.assert_array_equal(array, graph._index(name))
