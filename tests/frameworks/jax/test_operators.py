"""Front end for JAX, over the operator table: derivatives, transformations, compilation."""

import builtins
import functools
import subprocess
import sys
import threading

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402
from pyops.jax._call import Call, text_of  # noqa: E402

from ...graph.test_indices import ARGUMENTS, GOOD, INDEXED, LOSSY, with_rows  # noqa: E402
from ...support.small_cases import FEW, OPERATORS, arguments  # noqa: E402
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


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda x, w: (x,), TypeError, r"expected arguments \(distances, frequencies\), got 1"),
        (lambda x, w: (x, [1.0]), TypeError, "frequencies: expected a jax.Array, got list"),
        (lambda x, w: (x, w.astype("f")), TypeError, "frequencies: expected float64 like dist"),
        (
            lambda x, w: (x, w[1:]),
            ValueError,
            r"frequencies: expected shape \(num_radial=6,\), got",
        ),
        (lambda x, w: (x[None], w), ValueError, r"distances: expected shape \(num_samples,\), got"),
    ],
)
def test_refusals_of_compounds(change, kind, message):
    x, w = jnp.ones(4), jnp.ones(6)
    for function in pj.dimenet_basis, jax.jit(pj.dimenet_basis):
        with pytest.raises(kind, match=f"^pyops.jax.dimenet_basis: {message}"):
            function(*change(x, w))
    with pytest.raises(ValueError, match=r"^dimenet_basis: exponent: expected an integer from 1"):
        pj.dimenet_basis(x, w, exponent=0)


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


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda: pj.tanh([1.0]), TypeError, "x: expected a jax.Array, got list"),
        (lambda: pj.tanh(jnp.zeros(3, int)), TypeError, "expected float32 or float64, got int"),
        (
            lambda: pj.add(jnp.zeros(3), jnp.zeros(3, jnp.float32)),
            TypeError,
            "expected float64 like .*, got float32",
        ),
        (lambda: pj.tanh(), TypeError, r"expected arguments \(x\), got 0"),
        (lambda: pj.aggregate(3), TypeError, "graph: expected pyops.jax.Graph or pyops.Graph"),
        (
            lambda: pj.aggregate(pyops.Graph([0], [0]), jnp.zeros((2, 3))),
            ValueError,
            r"x: expected shape .*, got \(2, 3\)",
        ),
        (
            lambda: pj.aggregate(pyops.Graph([0], [0]), jnp.zeros((1, 3)), reduce="mode"),
            ValueError,
            "reduce: expected one of",
        ),
    ],
)
def test_refusals(wrong, kind, message):
    with pytest.raises(kind, match=message):
        wrong()


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


NO_OPTIONS = {
    "list for a size": ("gat", {"heads": [2]}),
    "flag for a size": ("gat", {"heads": True}),
    "number for a flag": ("gat", {"heads": 1, "concat": 1}),
    "infinity": ("gat", {"heads": 2, "negative_slope": np.inf}),
    "infinite slope": ("leaky_relu", {"negative_slope": np.inf}),
    "array": ("leaky_relu", {"negative_slope": jnp.ones(())}),
    "list of axes": ("sum", {"axis": [0]}),
    "number for a flag of axes": ("sum", {"keepdims": 1}),
}


@pytest.mark.parametrize(("name", "options"), NO_OPTIONS.values(), ids=NO_OPTIONS)
def test_options_are_refused_as_on_the_host(name, options):
    x, graph = np.ones((3, 4)), pyops.Graph([0, 1, 2], [1, 2, 0])
    arrays = [graph, x, x, np.ones(8)] if name == "gat" else [x]
    getattr(pj, name)(*arrays, **({"heads": 1} if name == "gat" else {}))
    with pytest.raises((TypeError, ValueError)) as expected:
        getattr(pyops, name)(*arrays, **options)
    with pytest.raises(expected.type) as found:
        getattr(pj, name)(*arrays, **options)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda src, dst: (src, dst[:2]), ValueError, r"dst: expected shape \(3,\), got \(2,\)"),
        (lambda src, dst: (src[:2], dst), ValueError, r"src: expected shape \(3,\), got \(2,\)"),
        (lambda src, dst: (src[None], dst), ValueError, r"src: expected shape .*, got \(1, 3\)"),
        (lambda src, dst: (src, dst, dst[:2]), ValueError, r"edge_ids: expected shape \(3,\)"),
        (lambda src, dst: (src * 1.0, dst), TypeError, "src: expected int32 or int64, got float64"),
        (lambda src, dst: (None, dst), TypeError, "src: expected a jax.Array, got None"),
        (lambda src, dst: (src, [1, 2, 0]), TypeError, "dst: expected a jax.Array, got list"),
    ],
)
def test_leaves_of_graphs_are_checked(change, kind, message):
    graph = pj.Graph([0, 1, 2], [1, 2, 0])
    leaves, sizes = graph.tree_flatten()
    wrong = pj.Graph.tree_unflatten(sizes, change(*leaves))
    for function in pj.aggregate, jax.jit(pj.aggregate):
        with pytest.raises(kind, match=f"pyops.jax.aggregate: graph: {message}"):
            function(wrong, jnp.ones((3, 2)))


def test_third_derivatives_are_refused():
    third = jax.grad(jax.grad(jax.grad(lambda x: pj.exp(x).sum() ** 1)))
    with pytest.raises(NotImplementedError, match="third derivatives"):
        third(jnp.ones(()))


def test_errors_of_a_run_are_told():
    """Errors that occur only at run time of a compiled program are raised with their message."""
    call = Call("tanh", "forward", (), 0, (), (True,), (), ())
    x = jnp.ones(3)
    text = text_of(call, [x], [x]).replace("tanh", "no such")
    run = jax.ffi.ffi_call("pyops", jax.ShapeDtypeStruct((3,), x.dtype))
    with pytest.raises(Exception, match="no such"):
        run(x, text=text).block_until_ready()


def test_jax_is_not_imported_unless_asked_for():
    code = "import sys, pyops; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("values", LOSSY.values(), ids=LOSSY)
def test_no_index_is_truncated(values):
    takers = {f"{name}: reverse": with_rows(name, pj, jnp.asarray) for name in INDEXED}
    takers["Graph: src"] = lambda values: pj.Graph(values, GOOD)
    for argument, take in takers.items():
        with pytest.raises(TypeError, match=f"{argument}: expected int32 or int64, got"):
            take(values)


FITTING = [1, 0, 3, 2]
ROWS = {
    "absent": None,
    "too few": FITTING[:3],
    "two dimensions": [FITTING],
    "too large": [1, 0, 3, 7],
    "too small": [1, 0, 3, -2],
    "beyond 32 bits": np.array(FITTING) + 2**32,
    "beyond 32 bits to no row": np.array([2**32 - 1, -1, 3, 2]),
    "no pairs": [1, 2, 3, 0],
    "edges that are no reverses": [2, 3, 0, 1],
    "floats": np.array(FITTING) * 1.0,
    **{kind: np.array(FITTING).astype(kind) for kind in ("int8", "uint8", "int16", "uint32", "?")},
}


@pytest.mark.parametrize("convert", [lambda values: values, jnp.asarray], ids=["host", "jax"])
@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_row_numbers_are_refused_as_on_the_host(rows, name, convert):
    given = rows if rows is None else convert(rows)
    with pytest.raises((TypeError, ValueError, IndexError)) as expected:
        with_rows(name)(rows)
    with pytest.raises((TypeError, ValueError, IndexError)) as found:
        with_rows(name, pj, jnp.asarray)(given)
    assert found.type is expected.type
    assert str(found.value) == f"pyops.jax.{expected.value}"


@pytest.mark.parametrize("name", INDEXED)
def test_row_numbers_need_the_choice_that_takes_them(name):
    graph, arrays, options = arguments(name)
    (option,) = OPERATORS[name].signature.indexed.values()
    for choice in {*OPERATORS[name].signature.options[option.option].choices} - {option.choice}:
        with pytest.raises(ValueError, match=f"^pyops.jax.{name}: reverse: expected None without"):
            getattr(pj, name)(graph, *arrays, **{**options, option.option: choice})


TRACED = {"absent": TypeError, "too few": ValueError, "two dimensions": ValueError}
TRACED |= dict.fromkeys(("floats", "int8", "uint8", "int16", "uint32", "?"), TypeError)


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("rows", TRACED)
def test_row_numbers_that_are_traced(rows, name):
    """Type and shape of traced row indices are checked; their values are checked in each run."""
    call = jax.jit(with_rows(name, pj, jnp.asarray))
    call(jnp.asarray(FITTING))
    given = ROWS[rows] if rows == "absent" else jnp.asarray(ROWS[rows])
    with pytest.raises(TRACED[rows], match=f"^pyops.jax.{name}: reverse: expected"):
        call(given)


def test_row_numbers_of_another_graph():
    """Row indices that are valid for one graph are checked again for another."""
    fitting, other = (pyops.Graph([0, 1, 2, 3], dst) for dst in (FITTING, [2, 3, 0, 1]))
    rows = jnp.asarray(FITTING)

    def call(graph):
        return pj.edge_to_edge(graph, jnp.ones((4, 2)), exclude="image", reverse=rows)

    np.testing.assert_array_equal(call(fitting), call(fitting))
    with pytest.raises(ValueError, match="reverse: expected the reverse of an edge to run"):
        call(other)


def test_edge_ids_beyond_32_bits():
    graph = pyops.Graph([0, 1], [1, 0]).with_edge_ids([2**31, 1])
    text = "edge_ids: expected indices from -1 to .*=2147483647, got 2147483648 at 0"
    with pytest.raises(IndexError, match=f"^pyops.jax.Graph: {text}"):
        pj.Graph(graph)
    with pytest.raises(IndexError, match=f"^pyops.jax.aggregate: graph: {text}"):
        pj.aggregate(graph, jnp.ones((2, 2)))
    within = pj.Graph(pyops.Graph([0, 1], [1, 0]).with_edge_ids([2**31 - 1, 1]))
    assert within.indices[2].tolist() == [2**31 - 1, 1]


FLAGS = {
    "array": jnp.array([True, False, True, True]),
    "list": [jnp.array(k) for k in (0, True, 2, 1)],
    "list of floats": [jnp.array(k) for k in (0, 1.5, 2, 1)],
    "keys": jax.random.split(jax.random.key(0), 4),
}


@pytest.mark.parametrize(("argument", "take"), ARGUMENTS.items())
@pytest.mark.parametrize("values", FLAGS.values(), ids=FLAGS)
def test_arrays_that_are_no_indices(values, argument, take):
    with pytest.raises(TypeError, match=f"^{argument}: expected int32 or int64, got"):
        take(values)


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
