"""Nearest neighbours, against the shortest of all pairs."""

import itertools

import numpy as np
import pytest

from pyops import knn_graph

from .test_radius_graph import CELLS, POINTS, assert_same, listed
from .test_radius_graph import threads as threads  # a fixture


@pytest.mark.parametrize("name", CELLS)
def test_nearest(name, rng):
    """The edges into each point are the shortest of all images, in their order."""
    cell, pbc = CELLS[name]
    positions, nearest = rng.uniform(0, 3, (12, 3)), 15
    graph, vectors, offsets = knn_graph(positions, nearest, cell=cell, pbc=pbc)
    assert np.array_equal(vectors, positions[graph.src] - positions[graph.dst] + offsets)
    lengths = np.linalg.norm(vectors, axis=1).reshape(len(positions), -1)
    assert lengths.shape[1] == (11 if cell is None else nearest)
    assert np.array_equal(graph.dst, np.repeat(np.arange(12), lengths.shape[1]))
    whole = listed(positions, lengths.max() * (1 + 1e-9), cell, pbc)
    for i, row in enumerate(lengths):
        shifts = np.array([edge for edge in whole if edge[0] == i])
        every = positions[shifts[:, 1].astype(int)] - positions[i] + shifts[:, 2:]
        np.testing.assert_allclose(
            row, np.sort(np.linalg.norm(every, axis=1))[: len(row)], atol=3e-6
        )


def test_nearest_of_batches(rng):
    """Graphs of a batch stay apart, and small ones have all their points."""
    batch = np.array([5, 0, 5, 2, 5, 0, 5])
    graph, *_ = knn_graph(rng.uniform(0, 1, (7, 2)), 2, batch=batch)
    assert graph.in_degrees().tolist() == [2, 1, 2, 0, 2, 1, 2]
    assert (batch[graph.src] == batch[graph.dst]).all()
    alone, *_ = knn_graph(np.ones((3, 1), np.float32), 9)  # equal points: by their number
    assert alone.src.tolist() == [1, 2, 0, 2, 0, 1]
    assert knn_graph(np.zeros((0, 3)), 1)[0].num_edges == 0


@pytest.mark.parametrize("size", [4e-10, 1.0, 400.0, 1e5])
def test_nearest_images(size):
    """Those of one point in a cell of any size, and of points far outside of it."""
    _, vectors, _ = knn_graph(np.zeros((1, 3)), 6, cell=size * np.eye(3))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), size)
    far = size * np.array([[0.0, 0, 0], [200.5, 0.5, 0.5]])
    _, vectors, _ = knn_graph(far, 8, cell=size * np.eye(3))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), size * 0.75**0.5)
    wire = size * np.array([[0.0, 0, 0], [200.5, 1e4, 0.5]])
    _, vectors, _ = knn_graph(wire, 2, cell=size * np.eye(3), pbc=[True, False, False])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), size)


def test_nearest_of_clusters(rng):
    """Points close to each other, and some alone, in a large cell."""
    positions = np.concatenate([rng.normal(0, 1e-12, (50, 3)), rng.uniform(0, 10, (5, 3))])
    _, vectors, _ = knn_graph(positions, 20, cell=30 * np.eye(3))
    shifts = 30.0 * np.array([*itertools.product((-1, 0, 1), repeat=3)])
    every = positions[None, :, None] + shifts - positions[:, None, None]
    lengths = np.sort(np.linalg.norm(every, axis=3).reshape(55, -1), axis=1)[:, 1:21]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1).reshape(55, 20), lengths)


def test_nearest_are_threaded(rng, threads):
    positions = np.concatenate([rng.uniform(0, 1, (2000, 3)), [[1e9, 0, 0]]])
    found = []
    for number in 1, 3:
        threads(number)
        found.append(knn_graph(positions, 7))
    assert_same(*found)


@pytest.mark.parametrize(
    ("nearest", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_nearest_refused(nearest, error):
    with pytest.raises(error, match=r"^knn_graph: nearest: expected"):
        knn_graph(POINTS, nearest)


def test_nearest_of_too_many():
    assert knn_graph(POINTS, 2**31 - 2)[0].num_edges == 12
    with pytest.raises(ValueError, match=r"^knn_graph: nearest: expected fewer"):
        knn_graph(np.zeros((1, 1)), 2_000_000, cell=np.eye(1))
