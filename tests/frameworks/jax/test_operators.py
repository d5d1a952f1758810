"""Front end for JAX, over the operator table: derivatives, transformations, compilation."""

import builtins
import functools
import threading

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402

from ...support.small_cases import FEW, OPERATORS  # noqa: E402
from .examples import Example, assert_trees_close  # noqa: E402


@pytest.mark.parametrize("name", OPERATORS)
def test_same_as_numpy(name):
    example = Example(name)
    y, _ = example.numpy("forward")
    np.testing.assert_array_equal(example(*example.primals), y)
    np.testing.assert_array_equal(jax.jit(example)(*example.primals), y)
    _, pull = jax.vjp(example, *example.primals)
    gy = np.random.default_rng(1).standard_normal(y.shape)
    gradients = [g for g in example.numpy("backward", [gy]) if g is not None]
    assert_trees_close([*pull(jnp.asarray(gy))], gradients)


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives(name):
    """Gradients and second derivatives agree with differences along one direction."""
    example = Example(name)
    rng = np.random.default_rng(2)
    along = tuple(1e-6 * jnp.asarray(rng.standard_normal(p.shape)) for p in example.primals)
    there, here = (
        tuple(p + sign * t for p, t in zip(example.primals, along, strict=True)) for sign in (1, -1)
    )
    gradient = jax.jit(jax.grad(example.energy, example.everything))
    _, forward_over_reverse = jax.jvp(gradient, example.primals, along)
    for exact, one, other in zip(
        forward_over_reverse, gradient(*there), gradient(*here), strict=True
    ):
        scale = 1e-6 + abs(np.asarray(exact)).max(initial=0)
        np.testing.assert_allclose(exact, (one - other) / 2, atol=2e-4 * scale)

    def slope(*given):
        return jax.jvp(example.energy, given, along)[1]

    assert_trees_close(jax.grad(slope, example.everything)(*example.primals), forward_over_reverse)


@pytest.mark.parametrize("name", FEW)
def test_check_grads(name):
    example = Example(name)
    if sum(p.size for p in example.primals) > 2000:
        pytest.skip("too large for differences")
    check_grads(example, example.primals, order=2, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FEW)
def test_transformations(name):
    example = Example(name)
    along = jax.jacfwd(example, example.everything)(*example.primals)
    assert any(abs(np.asarray(part)).max() > 0 for part in along)
    assert_trees_close(along, jax.jacrev(example, example.everything)(*example.primals))
    first = jax.jit(jax.hessian(example.energy, example.everything))(*example.primals)
    reverse = jax.jacrev(jax.jacrev(example.energy, example.everything), example.everything)
    assert_trees_close(first, reverse(*example.primals))


@pytest.mark.parametrize("name", FEW)
def test_vmap(name):
    example = Example(name)
    batch = [jnp.stack([p, 0.5 * p, 0.9 * p]) for p in example.primals]
    mapped = jax.vmap(example)(*batch)
    for number in range(3):
        np.testing.assert_array_equal(mapped[number], example(*(b[number] for b in batch)))
    only = jax.vmap(example, (0,) + (None,) * (len(batch) - 1))(batch[0], *example.primals[1:])
    np.testing.assert_array_equal(only[0], example(*example.primals))


@pytest.mark.parametrize("name", FEW)
def test_compiled(name):
    example = Example(name)
    gradient = jax.grad(example.force_loss, example.everything)
    assert_trees_close(jax.jit(gradient)(*example.primals), gradient(*example.primals))


def test_graphs_as_arguments():
    """Graphs of equal sizes share a compiled function; each gives its own result."""
    rng = np.random.default_rng(3)
    traced = []

    @jax.jit
    def total(graph, x):
        traced.append(graph)
        return jax.grad(lambda x: (pj.aggregate(graph, x) ** 2).sum())(x)

    x = jnp.asarray(rng.standard_normal((6, 3)))
    for _ in range(40):
        plain = pyops.Graph(rng.integers(0, 6, 20), rng.integers(0, 5, 20), 6, 5)
        y = pyops.aggregate(plain, np.asarray(x))
        (expected,) = (
            g for g in pyops.aggregate.backward(plain, np.asarray(x), 2 * y) if g is not None
        )
        np.testing.assert_allclose(total(pj.Graph(plain), x), expected, rtol=1e-12)
    assert len(traced) == 1
    assert repr(pj.Graph([0], [1], 2)) == "Graph(num_src=2, num_dst=2, num_edges=1)"


def test_shared_edges():
    graph = pyops.Graph.from_csc([0, 2, 4], [0, 1, 1, 0], 2, [0, 1, 0, 1], 2)
    edge = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(
        jax.jit(lambda g, e: pj.aggregate(g, None, e))(pj.Graph(graph), edge),
        pyops.aggregate(graph, None, np.asarray(edge)),
    )


def test_compounds():
    """Results, derivatives and transformations of compound operators."""
    x, w = jnp.linspace(0.1, 0.9, 5), jnp.array([3.0, 6.5])
    basis = functools.partial(pj.dimenet_basis, num_spherical=3, num_radial=2)
    expected = pyops.dimenet_basis(np.asarray(x), np.asarray(w), num_spherical=3, num_radial=2)
    mapped = [a[1] for a in jax.vmap(basis, (0, None))(jnp.stack([x, x]), w)]
    for found in basis(x, w), jax.jit(basis)(x, w), mapped:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    check_grads(basis, (x, w), order=2, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


def test_float32():
    x = jnp.linspace(0, 1, 5, dtype=jnp.float32)
    assert pj.tanh(x).dtype == jnp.float32
    np.testing.assert_array_equal(pj.tanh(x), pyops.tanh(np.asarray(x)))


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", OPERATORS)
def test_half_precision(name, kind):
    """Results and gradients are those of NumPy, which rounds once."""
    example = Example(name)
    primals = tuple(p.astype(kind) for p in example.primals)
    example.arrays = [None if a is None else np.asarray(a).astype(kind) for a in example.arrays]
    y = example.numpy("forward")[0]
    for function in example, jax.jit(example):
        z, pull = jax.vjp(function, *primals)
        assert z.dtype == kind
        np.testing.assert_array_equal(z, y)
        gradients = pull(jnp.ones_like(z))
        expected = [g for g in example.numpy("backward", [np.ones_like(y)]) if g is not None]
        for one, other in zip(gradients, expected, strict=True):
            assert one.dtype == other.dtype == kind
            np.testing.assert_array_equal(one, other)
    tangents = tuple(jnp.ones_like(p) for p in primals)
    moved = example.numpy("jvp", example.spread(map(np.asarray, tangents)))
    np.testing.assert_array_equal(jax.jvp(example, primals, tangents)[1], moved)


def test_empty():
    graph = pyops.Graph([], [], 0, 3)
    assert pj.aggregate(graph, jnp.zeros((0, 2))).shape == (3, 2)


def test_threads():
    """Several threads call long-running compiled functions at once."""
    example = Example("gno_conv")
    function = jax.jit(jax.grad(example.energy, example.everything))
    expected, found = function(*example.primals), []

    def work():
        for _ in range(20):
            found.append(function(*example.primals))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160
    for some in found:
        for one, other in zip(some, expected, strict=True):
            np.testing.assert_array_equal(one, other)


WEIGHTED = [name for name, op in OPERATORS.items() if op.signature.attention]


@pytest.mark.parametrize("name", WEIGHTED)
def test_attention_that_is_returned(name):
    example = Example(name)
    weighted = functools.partial(example, return_attention=True)
    expected = example.op(example.graph, *example.arrays, return_attention=True, **example.options)
    for function in weighted, jax.jit(weighted), jax.jit(jax.jit(weighted)):
        for one, other in zip(function(*example.primals), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    mapped = jax.vmap(weighted)(*(jnp.stack([p, p]) for p in example.primals))
    np.testing.assert_array_equal(mapped[1][1], expected[1])


@pytest.mark.parametrize("name", WEIGHTED)
def test_attention_is_a_constant(name):
    example = Example(name)

    def total(*given):
        y, alpha = example(*given, return_attention=True)
        return (y * y).sum() + alpha.sum(), alpha

    gradient, alpha = jax.grad(total, example.everything, has_aux=True)(*example.primals)
    np.testing.assert_allclose(
        alpha, example.op.attention(example.graph, *example.arrays, **example.options)
    )
    expected = jax.grad(lambda *p: (example(*p) ** 2).sum(), example.everything)(*example.primals)
    assert_trees_close(gradient, expected)
    assert "attention weights are detached" in example.function.__doc__


def test_whether_attention_is_returned_is_checked():
    graph, x = pyops.Graph([0], [0]), jnp.ones((1, 2))
    with pytest.raises(TypeError, match="gat: return_attention: expected True or False, got 1"):
        pj.gat(graph, x, x, jnp.ones(4), heads=1, return_attention=1)
    with pytest.raises(TypeError, match="unexpected option 'return_attention'"):
        pj.aggregate(graph, x, return_attention=True)


SCALARS = {
    "sizes": ("gat", {"heads": np.int64(2)}),
    "numbers": ("gat", {"heads": 2, "negative_slope": np.float64(0.3)}),
    "single numbers": ("gat", {"heads": 2, "negative_slope": np.float32(0.3)}),
    "flags": ("gat", {"heads": 2, "concat": np.bool_(False)}),
    "slopes": ("leaky_relu", {"negative_slope": np.float32(0.3)}),
    "axes": ("sum", {"axis": np.int64(0)}),
    "tuples of axes": ("sum", {"axis": (np.int32(0), np.int64(1)), "keepdims": np.True_}),
}


@pytest.mark.parametrize(("name", "options"), SCALARS.values(), ids=SCALARS)
def test_options_may_be_scalars_of_numpy(name, options):
    x = np.random.default_rng(0).standard_normal((3, 4))
    graph = pyops.Graph([0, 1, 2], [1, 2, 0])
    arrays = [graph, x, x, np.ones(8)] if name == "gat" else [x]
    expected = getattr(pyops, name)(*arrays, **options)
    found = jax.jit(lambda x: getattr(pj, name)(*arrays[:-1], x, **options))(arrays[-1])
    np.testing.assert_array_equal(found, expected)


def test_star_import():
    assert not {*pj.__all__} & {*dir(builtins)}
    assert {*OPERATORS} - {*pj.__all__} == {"abs", "max", "min", "sum"}


@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.one_of])
def test_one_of_the_inputs(name):
    example = Example(name)
    needed = example.op.signature.one_of
    named = dict(zip(example.op.signature.inputs, example.arrays, strict=True))
    rest = {n: a for n, a in named.items() if n not in needed and a is not None}
    with pytest.raises(TypeError, match=f"{name}: expected {' or '.join(needed)}, got neither"):
        example.function(example.graph, **rest, **example.options)


@pytest.mark.parametrize("name", OPERATORS)
def test_inputs_by_name(name):
    example = Example(name)
    names = [[*example.op.signature.inputs][place] for place in example.places]
    graph = {} if example.graph is None else {"graph": example.graph}

    def call(*given):
        named = dict(zip(names, given, strict=True))
        return example.function(**graph, **named, **example.options)

    np.testing.assert_array_equal(call(*example.primals), example(*example.primals))
    np.testing.assert_array_equal(jax.jit(call)(*example.primals), example(*example.primals))
