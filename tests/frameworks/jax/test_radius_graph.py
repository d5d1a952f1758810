"""Neighbours of JAX arrays: edges as of NumPy arrays, derivatives of vectors and offsets."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import pyops  # noqa: E402
import pyops.jax  # noqa: E402

from ...support.points import CASES  # noqa: E402


@pytest.mark.parametrize("name", CASES)
def test_as_of_arrays(name, rng):
    x = rng.uniform(-1, 3, (12, 3))
    graph, *found = pyops.jax.radius_graph(
        jnp.asarray(x), 1.5, **jax.tree.map(jnp.asarray, CASES[name])
    )
    expected, *arrays = pyops.radius_graph(x, 1.5, **CASES[name])
    y = jax.jit(pyops.jax.aggregate)(graph, x)
    np.testing.assert_allclose(y, pyops.aggregate(expected, x), atol=1e-12)
    for got, array in zip(found, arrays, strict=True):
        np.testing.assert_allclose(got, array, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name, rng):
    options = jax.tree.map(jnp.asarray, CASES[name])
    given = jnp.asarray(rng.uniform(-1, 3, (12, 3))), options.pop("cell", None)
    names = ("positions", "cell")[: 1 + (given[1] is not None)]

    def lengths(*given):
        arrays = dict(zip(names, given, strict=True))
        x = arrays.pop("positions")
        _, vectors, offsets, _ = pyops.jax.radius_graph(x, 1.5, **arrays, **options)
        return (vectors**2).sum(1), offsets

    check_grads(lengths, given[: len(names)], order=2, modes=("fwd", "rev"))


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_tracing_is_refused(transform):
    with pytest.raises(TypeError, match="radius_graph: positions: expected an array with values"):
        transform(lambda x: pyops.jax.radius_graph(x, 1.0)[1])(jnp.zeros((2, 3, 3)))


@pytest.mark.parametrize("name", CASES)
def test_nearest(name, rng):
    x = rng.uniform(-1, 3, (12, 3))
    options = jax.tree.map(jnp.asarray, CASES[name])
    graph, *found = pyops.jax.knn_graph(jnp.asarray(x), 3, **options)
    expected, *arrays = pyops.knn_graph(x, 3, **CASES[name])
    assert np.array_equal(graph.indices[0], expected.src)
    for got, array in zip(found, arrays, strict=True):
        np.testing.assert_allclose(got, array, atol=1e-12)


def test_refused():
    with pytest.raises(TypeError, match=r"positions: expected a jax\.Array, got list"):
        pyops.jax.radius_graph([[0.0]], 1.0)
    with pytest.raises(ValueError, match="radius_graph: positions: expected shape"):
        pyops.jax.radius_graph(jnp.zeros((3, 4)), 1.0)
