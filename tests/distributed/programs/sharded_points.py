"""Operators over points, and reductions, over the devices of one process, against those of one.

The functions share the same problems over points, so they are one program.
"""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import pyops
import pyops.jax as pj

from ...support import cases
from ...support.bases import bases
from .sharded import DEVICES, MESH, NAMES, OWN, SAME, all_phases, compare, quick

OVER_POINTS = [n for n, op in cases.OPERATORS.items() if "points" in op.signature.sizes]
REDUCTIONS = pyops.sum, pyops.mean, pyops.max, pyops.min
SIZES = (DEVICES, 1), (2 * DEVICES, 3), (12 * DEVICES, 5)
"""Points of all devices and modes; a device of two or more may have fewer points than modes."""
ALL = pj.Devices("ranks")


class Shared:
    """A problem whose points or rows are those of all devices."""

    def __init__(self, problem, rows=("points",), mesh=MESH):
        self.problem, self.op, self.options, self.mesh = problem, problem.op, problem.options, mesh
        self.names = [*self.op.signature.inputs]
        self.rows, self.own = rows, {**self.options}
        if "points" in self.own:
            self.own["points"] //= mesh.shape["ranks"]

    def spec(self, name):
        """Return the axes of an input, or of the result."""
        signature = self.op.signature
        shape = signature.inputs[name].shape if name in self.names else signature.output
        return P(*("ranks" if size.text in self.rows else None for size in shape))

    def array(self, name, dtype=np.float64, padding=0):
        return jnp.asarray(self.problem.arrays[name].astype(dtype))

    def whole(self, name, array):
        return np.asarray(array)

    def local(self, *own):
        return getattr(pj, self.op.name)(ALL, *own, **self.own)

    def function(self, *given):
        specs = tuple(map(self.spec, self.names))
        return jax.shard_map(self.local, mesh=self.mesh, in_specs=specs, out_specs=self.spec("y"))(
            *given
        )


class Rows(Shared):
    """A reduction; its result has rows if those are not reduced."""

    def spec(self, name):
        return OWN if name in self.names or self.options["axis"] in (1, (-2, 2)) else SAME


def condition_of(problem):
    return np.linalg.cond(problem.arrays["basis"]) if "basis" in problem.arrays else 1


def problem_of(name, points, modes, seed=0):
    return cases.representative(name).problem(seed=seed, points=points, modes=modes)


def transforms():
    """All operators over points, derivatives and precisions."""
    for name, sizes in itertools.product(OVER_POINTS, SIZES):
        problem = problem_of(name, *sizes)
        compare(Shared(problem), condition=condition_of(problem))
    infinite = Shared(problem_of("lno_encode", 2 * DEVICES, 2))
    infinite.problem = infinite.problem.having(poles=np.array([np.inf, 0.0]))
    given = [infinite.array(n) for n in infinite.names]
    y, pull = jax.vjp(infinite.function, *given)
    assert jnp.array_equal(y[:, 0], given[0][:, 0])
    assert all(jnp.isfinite(a).all() for a in pull(y))


def conditions():
    """Bases of any condition and with dependent columns behave as on one device."""
    programs = {}  # compiled once, for all bases
    for name in "orthonormalize", "ono_encode", "ono_decode":
        one = Shared(problem_of(name, 60, 6))
        programs[name] = quick(one.function), all_phases(one)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        for basis, condition in bases(rng, 60, 6):
            sizes = np.linalg.norm(basis, axis=0)
            scaled = basis / np.where(sizes > 0, sizes, 1)  # gradients scale inversely
            for name, (function, phases) in programs.items():
                given = Shared(problem_of(name, 60, 6, seed))
                given.problem = given.problem.having(basis=basis)
                y = np.asarray(function(*map(given.array, given.names)))
                (right,) = given.problem.run("forward")
                assert np.abs(y - right).max() <= 5e-15 * condition * np.abs(right).max(initial=1)
                if name == "orthonormalize":
                    assert (y.any(0) == right.any(0)).all()
                    assert np.abs(y.T @ y - np.diag(right.any(0))).max() < 1e-14
                if condition < 1e5:
                    given.problem = given.problem.having(basis=scaled)
                    compare(given, dtypes=[np.float64], condition=condition**2, program=phases)


def single():
    """Without float64: the same columns depend on others, and derivatives agree."""
    jax.config.update("jax_enable_x64", False)
    function = quick(Shared(problem_of("orthonormalize", 60, 6)).function)
    for seed, points in itertools.product(range(3), (60, 6000)):
        for basis, condition in bases(np.random.default_rng(seed), points, 6):
            if condition > 10:
                continue
            basis = basis.astype(np.float32)
            y = np.asarray(function(basis))
            right = pyops.orthonormalize(basis)
            assert (y.any(0) == right.any(0)).all()
            assert np.abs(y - right).max() <= 3e-6
            y = y.astype(float)  # sums of the check add no errors of float32
            assert np.abs(y.T @ y - np.diag(right.any(0))).max() < 1e-6
    for name in OVER_POINTS:
        compare(Shared(problem_of(name, 12 * DEVICES, 3)), dtypes=[np.float32], condition=10)
    jax.config.update("jax_enable_x64", True)


def reductions():
    """Sums, means and extremes, with ties on several devices, over rows and other axes."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 5, (4 * DEVICES, 3, 2)).astype(float)
    h = rng.standard_normal(x.shape)
    axes = (0, None, (0, 2), 1, (-3, 1), (-2, 2))
    for (m, op), (n, axis) in itertools.product(enumerate(REDUCTIONS), enumerate(axes)):
        options = {"axis": axis, "keepdims": (m + n) % 2 == 1}
        values = x if op in REDUCTIONS[2:] else h[::-1]
        gy = rng.standard_normal(op(values, **options).shape)
        problem = cases.Problem(op, None, options, {"x": values, "gy": gy, "hx": h})
        dtypes = [np.float64, np.float32] if axis == 0 else [np.float64]
        compare(Rows(problem), dtypes=dtypes, condition=2)
    one = np.ones((DEVICES, 1, 1))  # a row of a device
    for axis in 0, 1, (-2, 2):
        problem = cases.Problem(pyops.sum, None, {"axis": axis, "keepdims": False}, {"x": one})
        assert jnp.array_equal(Rows(problem).function(one), one.sum(axis))
    for spec, count in (SAME, DEVICES), (OWN, 1):  # rows that are equal on all devices
        total = jax.shard_map(pj.sum, mesh=MESH, in_specs=(SAME, spec), out_specs=SAME)
        y, pull = jax.vjp(lambda x, total=total: total(ALL, x), x)
        np.testing.assert_allclose(y, count * x.sum(), 1e-14)
        assert (np.asarray(pull(y * 0 + 1)[0]) == count).all()
    x[:, 0, 0] = np.inf
    problem = cases.Problem(pyops.max, None, {"axis": 0, "keepdims": False}, {"x": x})
    y, pull = jax.vjp(Rows(problem).function, x)
    assert jnp.array_equal(y, x.max(0))
    (slopes,) = pyops.max.backward(x, h[0], axis=0)
    np.testing.assert_allclose(pull(h[0])[0], slopes, 1e-14)
    unknown = np.where(np.arange(DEVICES) > 0, 1.0, np.nan)[:, None] * [1, 2]
    problem = cases.Problem(pyops.max, None, {"axis": 0, "keepdims": False}, {"x": unknown})
    y, pull = jax.vjp(Rows(problem).function, unknown)
    assert jnp.isnan(y).all()
    assert jnp.isnan(pull(y)[0]).all()


def problems():
    """Yield one problem of each kind."""
    for name in "ono_encode", "lno_decode", "orthonormalize":
        yield Shared(problem_of(name, 4 * DEVICES, 3))
    x = np.random.default_rng(0).integers(0, 3, (2 * DEVICES, 4)).astype(float)
    arrays = {"x": x, "gy": x[0], "hx": x + 1}
    for op in pyops.mean, pyops.max:
        yield Rows(cases.Problem(op, None, {"axis": 0, "keepdims": False}, arrays))


def eager():
    """Operations one after another, each compiled alone, give what a compiled function gives."""
    for shared in [*problems()][::4]:
        compare(shared, lambda f: f, dtypes=[np.float64], condition=10)


def inside():
    """Derivatives inside shard_map are those of the sum over devices, here to second order."""
    for shared in problems():
        given = tuple(shared.array(n) for n in shared.names)
        specs = tuple(map(shared.spec, shared.names))

        def local(*some, shared=shared):
            return (shared.local(*some) ** 2).sum()

        def total(*some, shared=shared):
            return (shared.function(*some) ** 2).sum()

        def both(function, places):
            slopes = jax.grad(function, places)
            return lambda *some: jax.jvp(slopes, some, some)

        places = range(len(given))
        found = jax.shard_map(
            both(local, places), mesh=MESH, in_specs=specs, out_specs=(specs, specs)
        )
        found, right = quick(found)(*given), quick(both(total, places))(*given)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
            np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def transformations():
    """vmap around and inside shard_map, loops, and a mesh whose other axis has samples."""
    for shared in problems():
        given = tuple(shared.array(n) for n in shared.names)
        specs = tuple(map(shared.spec, shared.names))
        batch = tuple(jnp.stack([a, a[::-1]]) for a in given)
        one = quick(lambda *some, s=shared: jax.vjp(s.function, *some[1:])[1](some[0]))
        ys = np.stack([quick(shared.function)(*(a[i] for a in batch)) for i in range(2)])
        right = [one(ys[i], *(a[i] for a in batch)) for i in range(2)]
        right = [np.stack(some) for some in zip(*right, strict=True)]
        y = shared.spec("y")

        def looped(*own, shared=shared):
            return jax.lax.map(lambda rows: jax.checkpoint(shared.local)(*rows), own)

        def over(function, mesh=MESH, first=None, specs=specs, y=y):
            given = tuple(P(first, *spec) for spec in specs)
            return jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=P(first, *y))

        ways = [jax.vmap(shared.function), over(jax.vmap(shared.local)), over(looped)]
        if DEVICES % 2 == 0:
            mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("samples", "ranks"))
            local = type(shared)(shared.problem, mesh=mesh).local
            ways.append(over(jax.vmap(local), mesh, "samples"))
        for way in ways:

            def all_of(gy, *some, way=way):
                y, pull = jax.vjp(way, *some)
                return y, *pull(gy)

            for a, b in zip(quick(all_of)(ys, *batch), (ys, *right), strict=True):
                np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def refusals():
    """Errors name the argument, what was expected, and what was given."""
    basis, u = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3))), jnp.ones((2, 4))

    def refused(kind, text, function, *args, inside=True, **keywords):
        def call(*own):
            return function(*args, **keywords)

        if inside:
            keywords_of_map = {"in_specs": SAME, "out_specs": SAME}
            call = jax.shard_map(call, mesh=MESH, **keywords_of_map)
        with pytest.raises(kind, match=re.escape(text)):
            call(u)

    at = "pyops.jax."
    text = "orthonormalize: devices: expected a call inside jax.shard_map over the mesh axis 'ran"
    refused(ValueError, at + text, pj.orthonormalize, ALL, basis, inside=False)
    text = "sum: devices: expected a call inside jax.shard_map over the mesh axis 'rows'"
    refused(ValueError, at + text, pj.sum, pj.Devices("rows"), basis)
    text = "mean: devices: expected jax.shard_map with check_vma=True, got False"
    unknown = jax.shard_map(
        lambda x: pj.mean(ALL, x), mesh=MESH, in_specs=OWN, out_specs=SAME, check_vma=False
    )
    refused(ValueError, at + text, unknown, jnp.ones(DEVICES), inside=False)
    text = "aggregate: graph: expected pyops.jax.Graph or pyops.Graph, got Devices"
    refused(TypeError, at + text, pj.aggregate, ALL, basis)
    text = "elem_scale: argument 0: expected an array, as the operator is local, got Devices"
    refused(TypeError, at + text, pj.elem_scale, ALL, basis, basis[0])
    text = "ono_encode: basis: expected a jax.Array, got Devices"
    refused(TypeError, at + text, pj.ono_encode, u, ALL)
    text = "ono_encode: basis: expected float64 like u, got float32"
    refused(TypeError, at + text, pj.ono_encode, ALL, u, basis.astype(np.float32))
    text = "ono_encode: expected arguments (u, basis), got 1"
    refused(TypeError, at + text, pj.ono_encode, ALL, u)
    text = "ono_encode: basis: expected shape (points, modes) over devices, got (12,); pyops.blocks"
    refused(ValueError, at + text, pj.ono_encode, ALL, u, basis.reshape(-1))
    refused(TypeError, "per_sample", pj.ono_encode, ALL, u, basis, per_sample=True)
    count = 4 * DEVICES
    text = f"ono_encode: basis: expected shape (points={count}, modes), got ({3 * DEVICES}, 3), "
    refused(ValueError, text + f"with the points of {DEVICES}", pj.ono_encode, ALL, u, basis[1:])
    text = f"orthonormalize: basis: expected modes <= points, got modes={count + 1} and points="
    refused(ValueError, text, pj.orthonormalize, ALL, jnp.ones((4, count + 1)))
    text = f"orthonormalize: basis: expected shape (points, modes), got ({count}, 3, 1)"
    refused(ValueError, text, pj.orthonormalize, ALL, basis[..., None])
    text = "lno_decode: points: expected an integer"
    refused(ValueError, text, pj.lno_decode, ALL, u, u[0], points=-1)
    refused(ValueError, "sum: axis: expected axes from -2 to 1", pj.sum, ALL, basis, axis=2)
    refused(TypeError, "sum: axis: expected an integer", pj.sum, ALL, basis, axis="rows")
    refused(ValueError, at + "sum: x: expected rows, got shape ()", pj.sum, ALL, basis[0, 0])
    refused(TypeError, "Devices: axis: expected a str, got int", pj.Devices, 1, inside=False)
    named = jax.shard_map(
        lambda u, b: pj.ono_encode(ALL, basis=b, u=u),
        mesh=MESH,
        in_specs=(P(None, "ranks"), OWN),
        out_specs=SAME,
    )
    whole = np.tile(basis, (DEVICES, 1)) + np.eye(count)[:, :3]
    values = np.ones((2, count))
    np.testing.assert_allclose(named(values, whole), pyops.ono_encode(values, whole), 1e-13, 1e-13)


def unfinished():
    """Leave computations behind; the program ends after these."""
    step = jax.jit(
        jax.shard_map(
            lambda b: pj.orthonormalize(ALL, b) + 1, mesh=MESH, in_specs=OWN, out_specs=OWN
        )
    )
    basis = jnp.ones((2000 * DEVICES, 8))
    for _ in range(4):  # of many at a time, more than 32 on an idle machine, XLA itself deadlocks
        basis = step(basis)


if __name__ == "__main__":
    for name in NAMES:
        globals()[name]()
