"""Rows sorted by type, of whole vectors: they are multiplied where they are."""

import itertools

import numpy as np
import pytest

import pyops
from pyops import Graph

from ..support.compare import assert_close

COUNTS = 200, 0, 1300, 1


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sorted_rows(width, dtype, rng):
    ptr = np.concatenate([[0], np.cumsum(COUNTS)])
    rows = int(ptr[-1])
    x = rng.standard_normal((rows, width)).astype(dtype)
    weight = rng.standard_normal((len(COUNTS), width, width)).astype(dtype)
    gy = rng.standard_normal((rows, width)).astype(dtype)
    parts = [slice(*ends) for ends in itertools.pairwise(ptr)]
    exact = [a.astype(np.float64) for a in (x, weight, gy)]
    y, gx, gweight = (np.zeros_like(a) for a in (exact[2], *exact[:2]))
    for part, matrix, total in zip(parts, exact[1], gweight, strict=True):
        y[part] = exact[0][part] @ matrix
        gx[part] = exact[2][part] @ matrix.T
        total[...] = exact[0][part].T @ exact[2][part]
    tolerance = 4e-6 if dtype == np.float32 else 1e-14
    graph = Graph.from_csc(ptr, np.arange(rows), rows)
    found = pyops.segment_matmul(graph, x, weight)
    assert_close([found], [y], tolerance)
    slopes = pyops.segment_matmul.backward(graph, x, weight, gy=gy)
    assert_close(slopes[:2], [gx, gweight], tolerance)

    order = rng.permutation(rows)
    types = np.repeat(np.arange(len(COUNTS)), COUNTS)[order]
    graph = Graph(np.arange(rows), types, rows, len(COUNTS))
    np.testing.assert_array_equal(pyops.segment_matmul(graph, x[order], weight), found[order])


def test_relations(rng):
    """The sum of messages with the matrix of their relation, as the docstring has it."""
    src, dst, relations = rng.integers(0, [[9], [9], [3]], (3, 40))
    x, weight = rng.standard_normal((9, 4)), rng.standard_normal((3, 4, 5))
    products = pyops.segment_matmul(Graph(src, relations, 9, 3), x, weight)
    y = np.zeros((9, 5))
    np.add.at(y, dst, np.einsum("ei,eij->ej", x[src], weight[relations]))
    assert_close([pyops.aggregate(Graph(src, dst, 9, 9), edge=products)], [y], 1e-14)
