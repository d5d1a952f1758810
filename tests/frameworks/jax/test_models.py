"""Models of files on JAX arrays: the values and derivatives of NumPy, compiled or not."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402

from ...models.programs import model, real, step  # noqa: E402
from ...models.test_programs import GENERIC, GRAPH, GRAPHS, INDEX, SQUARE, X, mlp, one_step  # noqa: E402

TRACED = "add_self_loops", "remove_self_loops"
"""Calls whose results have sizes that depend on the values of indices."""


@pytest.mark.parametrize("case", GENERIC)
def test_generic(case):
    given, arrays, expected = GENERIC[case]
    found, inputs = one_step(given, arrays)
    arguments = [jnp.asarray(a) if a.dtype.kind == "f" else a for a in inputs]
    y = found(*arguments, GRAPH)
    assert isinstance(y, jax.Array)
    np.testing.assert_allclose(y, expected, rtol=1e-13, atol=1e-14)
    names = [one.name for one in found.inputs if one.kind == "real"]
    gy = np.random.default_rng(0).standard_normal(y.shape)

    def loss(reals, parameters):
        held = dict(zip(names, reals, strict=True)) | {"i": INDEX, "g": GRAPH}
        return jnp.vdot(found(**held, parameters=parameters), gy)

    reals = [a for a in arguments if isinstance(a, jax.Array)]
    gradients = jax.jit(jax.grad(loss, (0, 1)))(reals, found.parameters)
    own = found.backward(*inputs, GRAPH, gy)
    for name, gradient in [*zip(names, gradients[0], strict=True), *gradients[1].items()]:
        np.testing.assert_allclose(gradient, own[name], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("traced", [False, True])
def test_graphs(name, traced):
    """Derived graphs of graphs that are constants, and of those that jit traces."""
    options = GRAPHS[name][0][0]
    inputs = [{"name": "g", "kind": "graph"}, real("x", 1), real("z", 1)]
    inputs += [{"name": "i", "kind": "index"}, {"name": "j", "kind": "index"}]
    names = {"by_relation": {"index": "i"}}
    names["graph_of"] = {"src": "i", "dst": "j", "num_src": "x", "num_dst": "z"}
    graph = None if name == "graph_of" else "g"
    steps = [step(name, "h", names.get(name), graph, **options)]
    if len(GRAPHS[name][0]) == 2:
        steps.append(step("gather", "y", {"x": "x", "index": "h"}))
    else:
        steps.append(step("aggregate", "y", {"x": "z" if name == "reverse" else "x"}, "h"))
        steps.append(step("in_degrees", "d", graph="h"))
    outputs = ["y", "d"] if len(steps) == 3 else ["y"]
    found = model(inputs, steps, outputs=outputs)
    x, z = (np.random.default_rng(0).standard_normal((count, 1)) for count in (5, 4))
    given = x, z, np.arange(7) % 3, GRAPH.dst
    expected = found(GRAPH, *given)
    held = pj.Graph(GRAPH)
    call = found if not traced else jax.jit(found)
    arrays = jnp.asarray(x), jnp.asarray(z), *given[2:]
    if traced and name in TRACED:
        with pytest.raises(ValueError, match="graph: expected one that is not traced"):
            call(held, *arrays)
        return
    found = call(held, *arrays)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b), found, expected))


def test_edges():
    """Pairs of nodes are a graph, also while they are traced."""
    found, edges = mlp(), np.stack([SQUARE.src, SQUARE.dst])
    expected = found(SQUARE, X)
    for call in found, jax.jit(found):
        for result, other in zip(call(jnp.asarray(edges), jnp.asarray(X)), expected, strict=True):
            np.testing.assert_allclose(result, other, rtol=1e-13)


def test_second_derivatives():
    found, v = mlp(), np.random.default_rng(0).standard_normal(X.shape)

    def energy(x, parameters):
        return found(SQUARE, x, parameters=parameters)[1].sum()

    def loss(parameters):
        return jnp.vdot(jax.grad(energy)(jnp.asarray(X), parameters), v)

    expected = found.double_backward(
        SQUARE, X, None, np.ones((5, 4)), cotangents={"x": v}, wanted=[*found.parameters]
    )
    for name, gradient in jax.grad(loss)(found.parameters).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-12, atol=1e-13)


GATHER = step("gather", "y", {"x": "x", "index": "i"})
SCATTER = step("scatter_sum", "y", {"x": "x", "index": "i"})


def indexed(given):
    return model([real("x", 3), {"name": "i", "kind": "index"}], [given])


def test_indices_out_of_bounds():
    """They are refused where they are known; otherwise rows are NaN."""
    found, index = indexed(GATHER), jnp.asarray([0, 5, -1])
    with pytest.raises(IndexError, match=r"steps\[0\]: gather: index: expected indices"):
        found(jnp.asarray(X), index)
    rows = jax.jit(found)(jnp.asarray(X), index)
    np.testing.assert_array_equal(np.isnan(rows).all(1), [False, True, True])


REFUSED = {
    "unknown groups": (
        lambda: jax.jit(indexed(SCATTER))(jnp.asarray(X), jnp.asarray(INDEX)),
        ValueError,
        r"steps\[0\]: scatter_sum: index: expected one that is not traced",
    ),
    "type": (
        lambda: mlp()(SQUARE, jnp.asarray(X, np.float32)),
        TypeError,
        "Model: x: expected float64 like the parameters, got float32",
    ),
    "columns": (
        lambda: mlp()(SQUARE, jnp.asarray(X[:, :2])),
        ValueError,
        r"Model: x: expected shape \(rows, 3\), got \(5, 2\)",
    ),
    "list": (lambda: mlp()(pj.Graph(SQUARE), [1.0]), TypeError, "Model: x: expected an array, got"),
    "graph": (
        lambda: mlp()(jnp.asarray(X), jnp.asarray(X)),
        TypeError,
        r"Model: g: expected a graph or integers of shape \(2, num_edges\)",
    ),
    "index": (
        lambda: jax.jit(indexed(GATHER))(jnp.asarray(X), jnp.asarray(X)),
        TypeError,
        "Model: i: expected a vector of integers",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call()


def test_without_64_bits():
    """Parameters are not rounded silently."""
    with jax.enable_x64(False), pytest.raises(TypeError, match="expected jax_enable_x64 for float"):
        mlp()(pj.Graph(pyops.Graph([0], [1], 5)), X)
