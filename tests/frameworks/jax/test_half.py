"""Rows of bfloat16 reach the kernels as they are, through the transformations of JAX."""

import functools
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402
from pyops._call.half import TYPES  # noqa: E402
from pyops.jax import _call  # noqa: E402

from ...support.small_cases import OPERATORS  # noqa: E402
from .examples import Example  # noqa: E402
from .test_kernel_calls import QUICK, assert_same_bits  # noqa: E402
from .test_kernel_calls import without_python as without_python  # noqa: E402
from .test_transformations import mapped, transformations  # noqa: E402

BF16 = jnp.dtype(jnp.bfloat16)
NAMES = [name for name, op in OPERATORS.items() if op.signature.half]
REDUCTIONS = "max", "std", "softmax", "median"
CASES = [*((n, {}) for n in NAMES), *(("aggregate", {"reduce": r}) for r in REDUCTIONS)]
IDS = [f"{name} {options.get('reduce', '')}".strip() for name, options in CASES]


class Half(Example):
    """An example with rows of bfloat16, parameters of some type, and the same in float32."""

    def __init__(self, name, parameters=BF16, **options):
        super().__init__(name)
        self.options |= options
        rows = self.op.reads_halves("forward", len(self.arrays))
        kinds = [BF16 if rows[place] else parameters for place in self.places]
        self.primals = tuple(
            p.astype(BF16).astype(kind) for p, kind in zip(self.primals, kinds, strict=True)
        )
        self.tangents = tuple(draw(p, 2 + i) for i, p in enumerate(self.primals))
        self.cotangent = draw(jax.eval_shape(self, *self.primals), 1)

    @property
    def given(self):
        return self.primals, self.tangents, self.cotangent


def draw(like, seed):
    drawn = np.random.default_rng(seed).standard_normal(like.shape)
    return jnp.asarray(drawn).astype(BF16).astype(like.dtype)


def wide(given):
    return jax.tree.map(lambda a: a.astype(jnp.float32), given)


def derivatives(function, primals, tangents, cotangent):
    """Return the result and derivatives that are rounded once, sums within a rule included."""

    def along(*given):
        return jax.jvp(function, given, tangents)[1]

    def gradients(gy, *given):
        return jax.vjp(function, *given)[1](gy)

    def second(gy):
        return jax.jvp(functools.partial(gradients, gy), primals, tangents)[1]

    def both(gy):  # the second derivative along two directions
        return jax.vjp(second, gy)[1](tangents)

    return {
        "forward": function(*primals),
        "jvp": along(*primals),
        "backward": gradients(cotangent, *primals),
        "forward over forward": jax.jvp(along, primals, tangents)[1],
        "reverse over forward": jax.vjp(along, *primals)[1](cotangent),
        "forward over reverse": second(cotangent),
        "along the cotangent, too": jax.jvp(
            gradients, (cotangent, *primals), (2 * cotangent, *tangents)
        )[1],
        "reverse over reverse": jax.vjp(gradients, cotangent, *primals)[1](tangents),
        "reverse over forward over reverse": both(cotangent),
        "along another cotangent": jax.jvp(both, (cotangent,), (2 * cotangent,))[1],
    }


def assert_rounded(found, expected, like):
    """Results of float32 agree up to its rounding errors, those of bfloat16 are these rounded."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for (one, other), kind in zip(pairs, like, strict=True):
        assert one.dtype == kind
        assert other.dtype == jnp.float32
        tolerance = 2e-5 * np.max(abs(np.asarray(other)), initial=1e-9)
        low, high = (np.asarray((other + s * tolerance).astype(kind)) for s in (-1, 1))
        assert (low <= one).all()
        assert (one <= high).all()


def types(given):
    return [a.dtype for a in jax.tree.leaves(given)]


@pytest.fixture
def called(monkeypatch):
    """Return the list of kernels that Python looks up from now on, also of earlier programs."""
    names = []

    class Recording(dict):
        def get(self, name):
            names.append(name)
            return super().get(name)

    for _, _, graph in _call._recent:
        _call._handler.forget(graph)
    monkeypatch.setattr(_call._handler, "kernels", Recording(_call._handler.kernels))
    return names


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_every_operator(name, options, called, without_python):
    """Derivatives are those of float32, rounded once, by the kernels for bfloat16."""
    example = Half(name, jnp.dtype(jnp.float32), **options)
    program = jax.jit(functools.partial(derivatives, example), compiler_options=QUICK)
    expected = jax.block_until_ready(program(*wide(example.given)))
    assert all(kernel.endswith("_r4") for kernel in called)
    called.clear()
    found = jax.block_until_ready(program(*example.given))
    kernels = "forward", "backward", "double_backward"
    assert {*called} == {f"{name}_{kernel}_{TYPES[BF16.name]}" for kernel in kernels}
    without_python()
    assert_same_bits(program(*example.given), found)
    rows, y = types(example.primals), BF16
    by_phase = {
        "backward": rows,
        "reverse over forward": rows,
        "forward over reverse": rows,
        "along the cotangent, too": rows,
        "reverse over reverse": [y, *rows],
    }
    for phase, results in found.items():
        assert_rounded(results, expected[phase], by_phase.get(phase, [y]))


@pytest.mark.parametrize("name", NAMES)
def test_without_compilation(name):
    """Each phase on its own; all results, also gradients of sums of terms, have their types."""
    example = Half(name)
    found = derivatives(example, *example.given)
    program = jax.jit(functools.partial(derivatives, example), compiler_options=QUICK)
    assert_same_bits(found, program(*example.given))
    gradients = jax.grad(example.force_loss, example.everything)(*example.primals)
    expected = jax.grad(example.force_loss, example.everything)(*wide(example.primals))
    for one, other in zip(gradients, expected, strict=True):
        assert one.dtype == BF16
        error = np.linalg.norm(one.astype(jnp.float32) - other)
        assert error <= 2**-5 * np.linalg.norm(other)


@pytest.mark.parametrize("name", ["aggregate", "gat"])
def test_transformations(name):
    example = Half(name)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def program(primals, cotangent):
        found = {}
        for kind, transform in {**transformations(example), "vmap": mapped(0)}.items():
            y, pull = jax.vjp(transform(example), *primals)
            found[kind] = y, pull(cotangent)
        return found

    y, pull = jax.vjp(example, *example.primals)
    expected = y, pull(example.cotangent)
    for kind, found in program(example.primals, example.cotangent).items():
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert one.dtype == other.dtype == BF16, kind
            np.testing.assert_array_equal(one, other, err_msg=kind)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_not_widened(name):
    """Programs convert float32 results of kernels alone; saved inputs stay as they are."""
    example = Half(name, jnp.dtype(jnp.float32))

    def program(primals, cotangent):
        y, pull = jax.vjp(example, *primals)
        return y, pull(cotangent)

    text = jax.jit(program).lower(example.primals, example.cotangent).compile().as_text()
    converted = re.findall(r"= (\w+)\[\S* convert\(", text)
    assert converted
    assert {*converted} == {"bf16"}
    _, pull = jax.vjp(jax.jit(example), *example.primals)
    saved = [a for a in jax.tree.leaves(pull) if jnp.issubdtype(a.dtype, jnp.floating)]
    assert {*types(saved)} <= {*types(example.primals)}
    assert sum(a.size for a in saved) <= sum(p.size for p in example.primals)


@pytest.mark.parametrize("name", [n for n in NAMES if OPERATORS[n].signature.attention])
def test_attention_that_is_returned(name):
    example = Half(name)
    weighted = functools.partial(example, return_attention=True)
    example.arrays = example.spread(map(np.asarray, example.primals))
    expected = example.numpy("__call__", return_attention=True)
    for function in weighted, jax.jit(weighted):
        for one, other in zip(function(*example.primals), expected, strict=True):
            assert one.dtype == BF16
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("x", "edge"), [(BF16, np.float32), (np.float32, BF16), (np.float16, None), (np.float32, None)]
)
def test_other_types_of_rows_are_converted(x, edge, called):
    graph, kinds = pyops.Graph([0, 1, 2], [1, 2, 0]), [x, *([] if edge is None else [edge])]
    rows = [draw(jnp.zeros((3, 2)), seed).astype(kind) for seed, kind in enumerate(kinds)]
    y, pull = jax.vjp(functools.partial(pj.aggregate, graph), *rows)
    expected, pull_wide = jax.vjp(functools.partial(pj.aggregate, graph), *wide(rows))
    jax.block_until_ready((y, expected))
    assert called
    assert all(kernel.endswith("_r4") for kernel in called)
    np.testing.assert_array_equal(y, expected.astype(y.dtype))
    assert y.dtype == next((k for k in kinds if k != np.float32), np.float32)
    for one, other, row in zip(pull(y), pull_wide(wide(y)), rows, strict=True):
        np.testing.assert_array_equal(one, other.astype(row.dtype))
        assert one.dtype == row.dtype


def test_rows_on_distributed_graphs_are_converted(called):
    mesh = jax.make_mesh((2,), ("ranks",))
    graph = pj.distribute([0, 1, 2, 3], [1, 2, 3, 0], 4, mesh=mesh)
    call = jax.shard_map(
        pj.aggregate, mesh=mesh, in_specs=PartitionSpec("ranks"), out_specs=PartitionSpec("ranks")
    )
    x = np.asarray(draw(jnp.zeros((4, 2), BF16), 0))
    rows = graph.shard(x, "num_src")
    y, pull = jax.vjp(functools.partial(call, graph), rows)
    (gradient,) = jax.block_until_ready(pull(y))
    assert y.dtype == gradient.dtype == BF16
    np.testing.assert_array_equal(y, np.roll(x, 1, 0))
    np.testing.assert_array_equal(gradient, x)
    assert {*called} == {"aggregate_forward_r4", "aggregate_backward_r4"}
