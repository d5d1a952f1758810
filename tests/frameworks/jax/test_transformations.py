"""Every operator of `pyops.jax` inside the transformations of JAX, against the plain call.

One file: the tests share the table of transformations and its helpers.
"""

import functools
import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402

from ...support.small_cases import EVERY  # noqa: E402
from .examples import Example, assert_trees_close  # noqa: E402

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
MESH = jax.make_mesh((2,), ("i",), (AxisType.Auto,))
SPLIT, WHOLE = PartitionSpec("i"), PartitionSpec()


def loss(function):
    """Return a loss that depends on every element of the results."""

    def total(*given):
        y = function(*given)
        return (y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)) + y * y).sum()

    return total


def with_rule(function):
    """Return the function with a custom VJP rule, equal to the one of JAX."""
    ruled = jax.custom_vjp(function)
    ruled.defvjp(lambda *p: jax.vjp(function, *p), lambda pull, cotangent: pull(cotangent))
    return ruled


def scanned(function):
    """Return the results of the second of two scan steps, with inputs carried from the first."""

    def step(carry, scale):
        return tuple(scale * c for c in carry), function(*carry)

    def call(*given):
        halves = tuple(0.5 * g for g in given)
        _, results = jax.lax.scan(step, halves, jnp.array([2.0, 1.0], given[0].dtype))
        return jax.tree.map(lambda r: r[1], results)

    return call


def looped(function):
    """Return the results of the second of two loop iterations; forward mode only."""

    def call(*given):
        def body(state):
            return state[0] + 1, function(*given)

        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, *given))
        return jax.lax.while_loop(lambda state: state[0] < 2, body, (0, nothing))[1]

    return call


def chosen(function):
    """Return one of two branches, by a value that is unknown at compile time."""

    def other(*given):
        return jax.tree.map(jnp.zeros_like, function(*given))

    def call(*given):
        return jax.lax.cond((given[0] == given[0]).all(), function, other, *given)

    return call


def mapped(place):
    """Return the second element of a batch along one input alone."""

    def transform(function):
        def call(*given):
            axes = [None] * len(given)
            axes[place] = given[place].ndim
            batch = [*given]
            batch[place] = jnp.stack([0.5 * given[place], given[place]], axes[place])
            return jax.tree.map(lambda y: y[1], jax.vmap(function, axes)(*batch))

        return call

    return transform


def exported(primals):
    """Return the results of an exported function, for inputs of these shapes."""

    def transform(function):
        allowed = jax.export.DisabledSafetyCheck.custom_call("pyops")
        there = jax.export.export(jax.jit(function), disabled_checks=[allowed])(*primals)
        return there.call

    return transform


def split(place, check):
    """Return the second device's shard of a batch along one input; other inputs are replicated."""

    def transform(function):
        def call(*given):
            specs = [WHOLE] * len(given)
            specs[place] = SPLIT
            batch = [*given]
            batch[place] = jnp.stack([0.5 * given[place], given[place]])

            def each(*some):
                own = [*some]
                own[place] = some[place][0]
                return jax.tree.map(lambda y: y[None], function(*own))

            shared = jax.shard_map(
                each, mesh=MESH, in_specs=tuple(specs), out_specs=SPLIT, check_vma=check
            )
            return jax.tree.map(lambda y: y[1], shared(*batch))

        return call

    return transform


def transformations(example):
    """Return transformations by name; each input is batched once and sharded once."""
    count = len(example.primals)
    every = {
        "checkpoint": jax.checkpoint,
        "custom_vjp": with_rule,
        "scan": scanned,
        "cond": chosen,
        "export": exported(example.primals),
    }
    for place in range(count):
        other = (place + 1) % count
        every[f"shard_map of {other} of vmap of {place}"] = composed(
            split(other, True), mapped(place)
        )
    return every


def composed(outer, inner):
    return lambda function: outer(inner(function))


@pytest.mark.parametrize("name", EVERY)
def test_transformations(name):
    example = Example(name)
    y, gy, gx = example.expected()
    tangents, dy = example.moved()

    @functools.partial(jax.jit, compiler_options=QUICK)
    def program(gy, tangents, *primals):
        forward = jax.jvp(looped(example), primals, tangents)
        found = {}
        for kind, transform in transformations(example).items():
            y, pull = jax.vjp(transform(example), *primals)
            found[kind] = y, pull(gy)
        return forward, found

    forward, reverse = program(gy, tangents, *example.primals)
    assert_trees_close(forward, (y, dy), "while_loop")
    for kind, found in reverse.items():
        assert_trees_close(found, (y, gx), kind)


@pytest.mark.parametrize("name", EVERY)
def test_without_compilation(name):
    example = Example(name)
    y, gy, gx = example.expected()
    tangents, dy = example.moved()
    with jax.disable_jit():
        assert_trees_close(example(*example.primals), y)
        found, pull = jax.vjp(example, *example.primals)
        assert_trees_close((found, pull(gy)), (y, gx))
        assert_trees_close(jax.jvp(example, example.primals, tangents), (y, dy))


@pytest.mark.parametrize("name", ["gat", "multiply"])
def test_transformations_without_compilation(name):
    example = Example(name)
    y, gy, gx = example.expected()
    tangents, dy = example.moved()
    with jax.disable_jit():
        for kind, transform in {**transformations(example), "vmap": mapped(0)}.items():
            if "shard_map" not in kind and kind != "export":
                found, pull = jax.vjp(transform(example), *example.primals)
                assert_trees_close((found, pull(gy)), (y, gx), kind)
        assert_trees_close(jax.jvp(looped(example), example.primals, tangents), (y, dy))
        nobody = jax.vmap(example)(*(jnp.zeros((0, *p.shape)) for p in example.primals))
    assert nobody.shape == (0, *y.shape)


def test_compilation_disabled_by_the_environment():
    code = "import jax.numpy, pyops.jax; print(pyops.jax.negative(jax.numpy.ones(2)))"
    setting = os.environ | {"JAX_DISABLE_JIT": "1"}
    run = [sys.executable, "-c", code]
    assert subprocess.check_output(run, env=setting, text=True) == "[-1. -1.]\n"


@pytest.mark.parametrize("name", ["aggregate", "multiply"])
def test_second_derivatives(name):
    """Both orders of modes, without compilation, recomputed, and across devices."""
    example = Example(name)
    tangents, _ = example.moved()

    def reverse(function):
        def slope(*given):
            return sum((g**2).sum() for g in jax.grad(loss(function), range(len(given)))(*given))

        return jax.grad(slope, example.everything)(*example.primals)

    def forward(function):
        def slope(*given):
            return jax.jvp(function, given, tangents)[1]

        return jax.jvp(slope, example.primals, tangents)[1]

    @functools.partial(jax.jit, compiler_options=QUICK)
    def program():
        ways = {"": lambda f: f, "checkpoint": jax.checkpoint, "shard_map": split(0, True)}
        ways["shard_map without checks"] = split(0, False)
        return {kind: (reverse(way(example)), forward(way(example))) for kind, way in ways.items()}

    found = program()
    for kind, derivatives in found.items():
        assert_trees_close(derivatives, found[""], kind)
    with jax.disable_jit():
        assert_trees_close((reverse(example), forward(example)), found[""])


def test_graphs_are_not_kept_from_a_trace():
    """Data that the first call caches in a graph serve later calls, also across two devices."""
    graph, x = pyops.Graph([0, 1, 1], [1, 0, 0]), jnp.ones((2, 2, 3))
    across = jax.shard_map(
        lambda x: pj.aggregate(graph, x[0])[None], mesh=MESH, in_specs=SPLIT, out_specs=SPLIT
    )
    expected = pyops.aggregate(graph, np.ones((2, 3)))
    np.testing.assert_array_equal(across(x)[1], expected)
    np.testing.assert_array_equal(pj.aggregate(graph, x[0]), expected)


def test_graphs_that_are_arguments():
    """Graphs are arguments: one per batch element, loop step, branch and device."""
    rng = np.random.default_rng(0)
    plain = [pyops.Graph(rng.integers(0, 6, 20), rng.integers(0, 5, 20), 6, 5) for _ in range(2)]
    graphs, x = [pj.Graph(g) for g in plain], jnp.asarray(rng.standard_normal((6, 3)))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *graphs)

    def first(graph):
        return jax.tree.map(lambda leaf: leaf[0], graph)

    every = {
        "vmap": jax.vmap(pj.aggregate, (0, None)),
        "scan": lambda both, x: jax.lax.scan(lambda c, g: (c, pj.aggregate(g, x)), 0, both)[1],
        "cond": lambda both, x: jnp.stack(
            [
                pj.aggregate(jax.lax.cond(which, lambda: graphs[0], lambda: graphs[1]), x)
                for which in jnp.array([True, False])
            ]
        ),
        "shard_map": jax.shard_map(
            lambda both, x: pj.aggregate(first(both), x)[None],
            mesh=MESH,
            in_specs=(SPLIT, WHOLE),
            out_specs=SPLIT,
        ),
    }
    y = np.stack([pyops.aggregate(g, np.asarray(x)) for g in plain])
    gx = sum(
        pyops.aggregate.backward(g, np.asarray(x), z)[0] for g, z in zip(plain, y, strict=True)
    )
    for kind, function in every.items():
        found, pull = jax.vjp(functools.partial(jax.jit(function), both), x)
        assert_trees_close((found, pull(found)), (y, (gx,)), kind)


@pytest.mark.parametrize("name", [name for name, op in EVERY.items() if op.signature.indexed])
def test_vmap_of_row_numbers(name):
    example = Example(name)
    ((option, _),) = example.op.signature.indexed.items()
    rows = jnp.asarray(example.options[option])
    both = jnp.stack([jnp.full_like(rows, -1), rows])
    found = jax.vmap(lambda some: example(*example.primals, **{option: some}))(both)
    for one, some in zip(found, both, strict=True):
        np.testing.assert_array_equal(one, example.numpy("__call__", **{option: np.asarray(some)}))


@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit])
def test_arrays_in_parts_on_several_devices(axes):
    mesh = jax.make_mesh((2,), ("i",), (axes,))
    x, w = jnp.arange(12.0).reshape(4, 3), jnp.arange(3.0)
    gy = np.random.default_rng(0).standard_normal((4, 3))
    parts = jax.device_put(x, NamedSharding(mesh, SPLIT))

    def program(x, w):
        found = []
        for function in pj.multiply, jax.vmap(pj.multiply, (0, None)):
            y, pull = jax.vjp(function, x, w)
            found.append((y, pull(jnp.asarray(gy))))
        return found

    expected = np.asarray(x * w), pyops.multiply.backward(np.asarray(x), np.asarray(w), gy)
    for call in program, jax.jit(program):
        assert_trees_close(call(parts, w), [expected, expected])
        with jax.set_mesh(mesh):
            assert_trees_close(call(parts, w), [expected, expected])


@pytest.mark.parametrize("name", EVERY)
def test_symbolic_sizes_are_refused(name):
    example = Example(name)
    names = [*example.op.signature.inputs]
    for place, primal in zip(example.places, example.primals, strict=True):
        given = [*example.primals]
        (symbol,) = jax.export.symbolic_shape("b")
        shape = (*primal.shape[:-1], symbol)
        given[example.places.index(place)] = jax.ShapeDtypeStruct(shape, primal.dtype)
        text = f"^pyops.jax.{name}: {names[place]}: expected sizes that are known, got .*b"
        with pytest.raises(ValueError, match=text):
            jax.export.export(jax.jit(example))(*given)


def test_an_exported_function_in_another_process(tmp_path):
    pytest.importorskip("flatbuffers")
    example = Example("gat")
    allowed = jax.export.DisabledSafetyCheck.custom_call("pyops")
    there = jax.export.export(jax.jit(example), disabled_checks=[allowed])(*example.primals)
    (tmp_path / "function").write_bytes(there.serialize(vjp_order=1))
    np.savez(tmp_path / "arrays.npz", *example.primals)
    code = """if True:
        import pathlib, sys
        import jax
        import numpy as np
        import pyops.jax
        folder = pathlib.Path(sys.argv[1])
        function = jax.export.deserialize((folder / "function").read_bytes()).call
        primals = np.load(folder / "arrays.npz").values()
        y, pull = jax.vjp(function, *primals)
        np.savez(folder / "results.npz", y, *pull(y))
    """
    setting = os.environ | {"JAX_ENABLE_X64": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=setting)
    y, pull = jax.vjp(example, *example.primals)
    results = [*np.load(tmp_path / "results.npz").values()]
    assert_trees_close(results, [y, *pull(y)])
