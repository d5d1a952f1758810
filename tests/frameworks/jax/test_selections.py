"""`where`, `clip`, softmax and its logarithm on arrays of JAX, against JAX's own."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import pyops.jax as pj  # noqa: E402

from ...families.test_selections import BOUNDS, draw  # noqa: E402

CONDITION = draw((4, 1, 3)) > 0
CALLS = {
    "where": (lambda x: pj.where(CONDITION, x, x[0]), lambda x: jnp.where(CONDITION, x, x[0])),
    "clip": (lambda x: pj.clip(x, **BOUNDS), lambda x: jnp.clip(x, **BOUNDS)),
    **{
        f"{name} {axis}": (
            lambda x, name=name, axis=axis: getattr(pj, name)(x, axis=axis),
            lambda x, name=name, axis=axis: getattr(jax.nn, name)(x, axis),
        )
        for name in ("softmax", "log_softmax")
        for axis in (0, 1, -1)
    },
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", CALLS)
def test_against_jax(name):
    x, g, h = (jnp.asarray(draw((4, 5, 3), seed)) for seed in range(3))

    def results(function):
        def along(x):
            return (jax.grad(lambda x: (function(x) * g).sum())(x) * h).sum()

        value, tangent = jax.jvp(function, (x,), (h,))
        return value, tangent, jax.jit(jax.grad(along))(x), jax.vmap(function)(x[:, None])

    one, other = map(results, CALLS[name])
    axis = name.rpartition(" ")[2]
    for found, expected in list(zip(one, other, strict=True))[: 3 if axis.isdigit() else 4]:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_condition():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"^pyops.jax.where: condition: expected a jax.Array"):
        pj.where(True, x, x)
    given = jnp.array([1.0, 0.0, 2.0])
    gradient = jax.grad(lambda c, x: pj.where(c, x, 2 * x).sum(), argnums=(0, 1))(given, x)
    np.testing.assert_array_equal(gradient, [[0, 0, 0], [1, 2, 1]])
