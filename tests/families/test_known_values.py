"""Results computed by hand and by the library that the operators originate from."""

import numpy as np
import pytest

import pyops

from ..support.compare import assert_close
from ..support.graphs import undirected

EDGES = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (3, 5), (4, 5)]
COORDS = np.arange(1, 9)[:, None] * [0.05, -0.03]
KERNEL = {"hidden": 5, "in_features": 4, "out_features": 3}
LENGTH = 5 * (2 + 1) + (5 + 1) * 4 * 3

NODES = np.arange(1, 7)[:, None] * np.full(4, 0.1)
CONSTANT = np.full(LENGTH, 0.01)
EXPECTED = [0.021032, 0.033704, 0.033732, 0.054920, 0.054948, 0.038072]

MIXED_NODES = NODES + 0.01 * np.arange(4)
WAVES = np.sin(np.arange(LENGTH))
FIRST = [0.322414877533, 0.159567955978, -0.149985008418]


def fused(graph, features, params):
    return pyops.gno_conv(graph, features, COORDS, params, hidden=5)


def in_two_steps(graph, features, params):
    kappa = pyops.gno_kernel(COORDS, params, **KERNEL)
    return pyops.gno_aggregate(graph, features, kappa)


def with_given_layer(graph, features, params):
    u, b_u, v, b_v = pyops.blocks.unpack_gno(params, dim=2, hidden=5)
    return pyops.kernel_conv(graph, features, np.maximum(COORDS @ u.T + b_u, 0), v.copy(), b_v)


@pytest.mark.parametrize("convolve", [fused, in_two_steps, with_given_layer])
def test_six_nodes(convolve):
    graph = undirected(EDGES, 6)
    assert (graph.num_edges, graph.num_entries) == (8, 16)
    y = convolve(graph, NODES, CONSTANT)
    np.testing.assert_allclose(y, np.outer(EXPECTED, np.ones(3)), atol=1e-12)
    y = convolve(graph, MIXED_NODES, WAVES)
    np.testing.assert_allclose(y[0], FIRST, atol=1e-12)


def test_matrix_of_an_edge_acts_from_the_right():
    """m = h kappa with kappa[e].reshape(in_features, out_features)."""
    graph = pyops.Graph([0], [1])
    kappa = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    y = pyops.gno_aggregate(graph, np.array([[1.0, 10.0], [0.0, 0.0]]), kappa)
    assert y.tolist() == [[0, 0, 0], [41, 52, 63]]


def test_mean_counts_entries_and_not_their_weights():
    graph = pyops.Graph([0, 1, 1], [1, 1, 0])
    layer, weights = np.ones((3, 1)), np.array([2.0, 4.0, 8.0])
    features = np.array([[1.0], [10.0]])
    y = pyops.kernel_conv(graph, features, layer, np.ones((1, 1)), None, weights, reduce="mean")
    assert y.tolist() == [[80], [21]]


def test_diagonal_kernel():
    graph = pyops.Graph([0], [0])
    features, layer = np.array([[1.0, 10.0]]), np.array([[1.0, 2.0]])
    weight, bias = np.array([[1.0, 1.0], [3.0, 1.0]]), np.array([0.5, 0])
    y = pyops.kernel_conv(graph, features, layer, weight, bias, kernel="diagonal")
    assert y.tolist() == [[3.5, 50]]


@pytest.mark.parametrize("max_degree", [0, 1, 4, 10])
def test_second_derivatives_of_harmonics(max_degree, rng):
    """Second derivatives agree with those of sphericart."""
    sphericart = pytest.importorskip("sphericart")
    vectors, h = rng.standard_normal((2, 50, 3))
    gy = rng.standard_normal((50, (max_degree + 1) ** 2))
    peer = sphericart.SphericalHarmonics(max_degree)
    _, slopes, seconds = peer.compute_with_hessians(vectors)
    got = pyops.spherical_harmonics.double_backward(vectors, gy, h, max_degree=max_degree)
    by_vectors = np.einsum("ek,eabk,eb->ea", gy, seconds, h)
    assert_close(got, [by_vectors, np.einsum("eak,ea->ek", slopes, h)], 1e-12)
