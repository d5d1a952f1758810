"""Small cases of the operators on JAX arrays."""

import jax
import jax.numpy as jnp
import numpy as np

import pyops.jax as pj

from ...support.small_cases import EVERY, arguments

jax.config.update("jax_enable_x64", True)


class Example:
    """Operator on JAX arrays, with a small case."""

    def __init__(self, name, seed=0):
        self.name, self.op, self.function = name, EVERY[name], getattr(pj, name)
        self.graph, self.arrays, self.options = arguments(name, seed)
        self.places = [i for i, a in enumerate(self.arrays) if a is not None]
        self.primals = tuple(jnp.asarray(self.arrays[i]) for i in self.places)

    def spread(self, given):
        """Return one array or None for each input."""
        every = [None] * len(self.arrays)
        for place, array in zip(self.places, given, strict=True):
            every[place] = array
        return every

    def __call__(self, *given, **more):
        graph = [] if self.graph is None else [self.graph]
        return self.function(*graph, *self.spread(given), **{**self.options, **more})

    def numpy(self, phase, *more, **keywords):
        graph = [] if self.graph is None else [self.graph]
        spread = [a for some in more for a in some]
        options = {**self.options, **keywords}
        found = getattr(self.op, phase)(*graph, *self.arrays, *spread, **options)
        if phase != "backward":
            return found
        return [  # None for inputs that have no derivative, where JAX has zeros
            np.zeros_like(a) if g is None and a is not None else g
            for g, a in zip(found, self.arrays, strict=True)
        ]

    def expected(self):
        """Return the results, a cotangent of each, and the gradients of the inputs, by NumPy."""
        y = self.numpy("__call__")
        rng = np.random.default_rng(1)
        gy = jax.tree.map(lambda a: rng.standard_normal(a.shape), y)
        gradients = self.numpy("backward", jax.tree.leaves(gy))
        return y, gy, tuple(g for g in gradients if g is not None)

    def moved(self):
        """Return a tangent of each input, and that of the results, by NumPy."""
        rng = np.random.default_rng(2)
        tangents = tuple(jnp.asarray(rng.standard_normal(p.shape)) for p in self.primals)
        return tangents, self.numpy("jvp", self.spread(map(np.asarray, tangents)))

    def energy(self, *given):
        y = self(*given)
        return (y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)) + y * y).sum()

    def force_loss(self, *given):
        return (jax.grad(self.energy, len(given) - 1)(*given) ** 2).sum()

    @property
    def everything(self):
        return tuple(range(len(self.primals)))


def assert_trees_close(one, other, why=""):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = max(1, float(abs(np.asarray(b)).max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * scale, err_msg=why)
