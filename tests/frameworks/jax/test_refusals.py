"""Operators of `pyops.jax` refuse invalid arguments, by the names and in the words of NumPy's."""

import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402
from pyops.jax._call import Call, text_of  # noqa: E402

from ...graph.test_indices import ARGUMENTS, GOOD, INDEXED, LOSSY, with_rows  # noqa: E402
from ...support.small_cases import OPERATORS, arguments  # noqa: E402


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
