"""Calls of programs: values, derivatives of every order, and what readers refuse.

Tables of calls make up most of the lines, so this is one module.
"""

import contextlib
import json
import subprocess
import sys

import numpy as np
import pytest

import pyops
from pyops._call.operator import OPERATORS
from pyops.models import Model, _container, load
from pyops.models._calls import CALLS
from pyops.models._program import read_program

from ..support.small_cases import arguments
from .programs import check, model, program, real, step

RNG = np.random.default_rng(0)
X, A, B = (RNG.standard_normal(shape) for shape in ((5, 3), (4, 3), (3, 2)))
V, W = RNG.standard_normal(3), RNG.uniform(0.5, 1.5, 5)
INDEX = np.array([2, 0, 2, 4, 1])
SRC, DST = np.array([0, 1, 1, 2, 3, 3, 3]), np.array([1, 1, 0, 2, 0, 3, 3])
GRAPH = pyops.Graph(SRC, DST, 5, 4)
EDGE = RNG.standard_normal((7, 2))


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def normal(x):
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 0.1)


def scattered(x, rows):
    found = np.zeros((rows, *x.shape[1:]))
    np.add.at(found, INDEX, x)
    return found


XY = {"x": "x"}
GENERIC = {
    "linear": (step("linear", "y", {"x": "x", "weight": "a"}), {"x": X, "a": A}, X @ A.T),
    "linear with bias": (
        step("linear", "y", {"x": "x", "weight": "a", "bias": "v"}),
        {"x": X, "a": A[:3], "v": V},
        X @ A[:3].T + V,
    ),
    "matmul": (step("matmul", "y", {"a": "x", "b": "b"}), {"x": X, "b": B}, X @ B),
    "matmul of one value": (step("matmul", "y", {"a": "x", "b": "x"}), {"x": A[:3]}, A[:3] @ A[:3]),
    "transpose": (step("transpose", "y", XY), {"x": X}, X.T),
    "layer_norm": (step("layer_norm", "y", XY, eps=0.1), {"x": X}, normal(X)),
    "layer_norm with weights": (
        step("layer_norm", "y", {"x": "x", "weight": "v", "bias": "w"}, eps=0.1),
        {"x": X, "v": V, "w": W[:3]},
        normal(X) * V + W[:3],
    ),
    "softmax": (step("softmax", "y", XY, axis=1), {"x": X}, softmax(X, 1)),
    "softmax of rows": (step("softmax", "y", XY, axis=0), {"x": X}, softmax(X, 0)),
    "softmax of a vector": (step("softmax", "y", XY, axis=-1), {"x": V}, softmax(V, 0)),
    "log_softmax": (step("log_softmax", "y", XY, axis=-1), {"x": X}, np.log(softmax(X, 1))),
    "concat": (
        step("concat", "y", {"x1": "x", "x2": "a", "x3": "x"}, axis=0),
        {"x": X, "a": A},
        np.concatenate([X, A, X]),
    ),
    "concat of columns": (
        step("concat", "y", {"x1": "x", "x2": "b"}, axis=1),
        {"x": X[:3], "b": B},
        np.concatenate([X[:3], B], 1),
    ),
    "concat of vectors": (
        step("concat", "y", {"x1": "v", "x2": "w"}, axis=0),
        {"v": V, "w": W},
        np.concatenate([V, W]),
    ),
    "slice": (step("slice", "y", XY, axis=0, start=1, stop=4), {"x": X}, X[1:4]),
    "slice of columns": (step("slice", "y", XY, axis=1, start=1), {"x": X}, X[:, 1:]),
    "slice of a vector": (step("slice", "y", XY, axis=0, start=0, stop=2), {"x": V}, V[:2]),
    "reshape": (step("reshape", "y", XY, shape=[-1, 5]), {"x": X}, X.reshape(3, 5)),
    "reshape to a vector": (step("reshape", "y", XY, shape=[15]), {"x": X}, X.ravel()),
    "gather": (step("gather", "y", {"x": "x", "index": "i"}), {"x": X}, X[INDEX]),
    "gather of elements": (step("gather", "y", {"x": "w", "index": "i"}), {"w": W}, W[INDEX]),
    "scatter_sum": (
        step("scatter_sum", "y", {"x": "x", "index": "i"}),
        {"x": X},
        scattered(X, 5),
    ),
    "scatter_sum of elements": (
        step("scatter_sum", "y", {"x": "w", "index": "i", "like": "z"}),
        {"w": W, "z": np.ones((6, 2))},
        scattered(W, 6),
    ),
    "full": (
        step("full", "y", {"like": "i"}, value=2.5, columns=2),
        {"x": X},
        np.full((5, 2), 2.5),
    ),
    "full vector": (step("full", "y", {"like": "x"}, value=1), {"x": X}, np.ones(5)),
    "constant": (step("constant", "y", values=[1, 2.5]), {"x": X}, np.array([1, 2.5])),
    "in_degrees": (step("in_degrees", "y", graph="g"), {"x": X}, np.array([2.0, 2, 1, 2])),
    "less": (step("less", "y", {"x1": "x"}, x2=0.1), {"x": X}, (X < 0.1).astype(float)),
    "equal": (step("equal", "y", {"x1": "x", "x2": "v"}), {"x": X, "v": X[0]}, (X[0] == X) * 1.0),
    "number first": (step("subtract", "y", {"x2": "x"}, x1=1), {"x": X}, 1 - X),
    "sum of a column": (step("sum", "y", XY, axis=0, keepdims=True), {"x": X}, X.sum(0)[None]),
}


def one_step(given, arrays):
    """Return the model of one step, whose arrays are inputs and parameters in turn."""
    names = list(arrays)
    inputs = [real(n, None if arrays[n].ndim == 1 else arrays[n].shape[1]) for n in names[::2]]
    tensors = {name: arrays[name] for name in names[1::2]}
    extra = [{"name": "i", "kind": "index"}, {"name": "g", "kind": "graph"}]
    return model([*inputs, *extra], [given], tensors), [*(arrays[n] for n in names[::2]), INDEX]


@pytest.mark.parametrize("case", GENERIC)
def test_generic(case):
    given, arrays, expected = GENERIC[case]
    found, inputs = one_step(given, arrays)
    y = found(*inputs, GRAPH)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-13, atol=1e-14)
    check(found, *inputs, GRAPH)


def test_generic_calls_are_tested():
    tested = {given["call"] for given, _, _ in GENERIC.values()} | GRAPHS.keys()
    assert CALLS.keys() - OPERATORS.keys() <= tested


class Indexed:
    """Model with the indices of its calls."""

    def __init__(self, found, rows):
        self.model, self.rows = found, rows

    def __call__(self, *given):
        return self.model(*given, *self.rows.values())

    def backward(self, *given):
        *graph, gy = given
        return self.model.backward(*graph, *self.rows.values(), gy)

    def jvp(self, *given, **named):
        return self.model.jvp(*given, *self.rows.values(), **named)

    def double_backward(self, *given, **named):
        *graph, gy = given
        return self.model.double_backward(*graph, *self.rows.values(), gy, **named)


@pytest.mark.parametrize("name", [n for n, call in CALLS.items() if call.operator is not None])
def test_operators(name):
    """A step is a call of the operator; so are its derivatives."""
    graph, arrays, options = arguments(name)
    op = OPERATORS[name]
    rows = {n: options.pop(n) for n in op.signature.indexed if n in options}
    names = [*op.signature.inputs]
    tensors = dict(zip(names, arrays, strict=True))
    held = {n: a.reshape(len(a), -1) if a.ndim > 2 else a for n, a in tensors.items()}
    inputs = [] if graph is None else [{"name": "graph", "kind": "graph"}]
    inputs += [{"name": n, "kind": "index"} for n in rows]
    given = {n: n for n in (*names, *rows)}
    steps = [step(name, "y", given, None if graph is None else "graph", **options)]
    found = Indexed(model(inputs, steps, tensors), rows)
    options |= rows
    leading = [] if graph is None else [graph]
    y = op(*leading, *held.values(), **options)
    np.testing.assert_array_equal(found(*leading), y)
    gy = np.asarray(np.random.default_rng(1).standard_normal(y.shape))
    expected = op.backward(*leading, *held.values(), gy, **options)
    gradients = found.backward(*leading, gy)
    hs = {n: np.random.default_rng(2).standard_normal(a.shape) for n, a in tensors.items()}
    flat = [h.reshape(held[n].shape) for n, h in hs.items()]
    second = op.double_backward(*leading, *held.values(), gy, *flat, **options)
    again = found.double_backward(*leading, gy, cotangents=hs)
    for place, key in enumerate(tensors):
        one, two = (e[place] for e in (expected, second))
        np.testing.assert_allclose(gradients[key].ravel(), one.ravel(), rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(again[key].ravel(), two.ravel(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(again["gy"], second[-1], rtol=1e-11, atol=1e-11)
    dy = op.jvp(*leading, *held.values(), *flat, **options)
    np.testing.assert_allclose(found.jvp(*leading, tangents=hs), dy, rtol=1e-12, atol=1e-12)


GRAPHS = {
    "add_self_loops": [
        ({"mode": "replace"}, [0, 1, 3, 0, 1, 2, 3], [1, 0, 0, 0, 1, 2, 3],
         [0, 2, 4, 7, 8, 9, 10], (5, 4, 11)),
        ({"mode": "complete"}, [0, 1, 3, 0, 1, 2, 3], [1, 0, 0, 0, 1, 2, 3],
         [0, 2, 4, 7, 1, 3, 6], (5, 4, 11)),
    ],
    "remove_self_loops": [({}, [0, 1, 3], [1, 0, 0], [0, 2, 4], (5, 4, 7))],
    "reverse": [({}, DST, SRC, range(7), (4, 5, 7))],
    "per_edge": [({}, SRC, range(7), range(7), (5, 7, 7))],
    "by_relation": [
        ({"relations": 3}, SRC, DST * 3 + np.arange(7) % 3, range(7), (5, 12, 7)),
    ],
    "graph_of": [({}, [0, 1, 2, 0, 1, 2, 0], DST, range(7), (5, 4, 7))],
    "sources": [({}, SRC)],
    "destinations": [({}, DST)],
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    """Edge arrays of a derived graph are summed by its entries."""
    for options, *expected in GRAPHS[name]:
        inputs = [
            {"name": "g", "kind": "graph"},
            real("e", 2),
            {"name": "i", "kind": "index"},
            {"name": "j", "kind": "index"},
            real("p", 1),
            real("q", 1),
        ]
        indices = np.arange(7) % 3, DST
        names = {"by_relation": {"index": "i"}}
        names["graph_of"] = {"src": "i", "dst": "j", "num_src": "p", "num_dst": "q"}
        graph = None if name == "graph_of" else "g"
        steps = [step(name, "h", names.get(name), graph, **options)]
        if len(expected) == 1:
            steps.append(step("gather", "y", {"x": "e", "index": "h"}))
            want = EDGE[expected[0]]
        else:
            steps.append(step("aggregate", "y", {"edge": "e"}, "h"))
            src, dst, ids, sizes = expected
            want = np.zeros((sizes[1], 2))
        found = model(inputs, steps)
        edge = EDGE
        if len(expected) > 1:
            edge = np.random.default_rng(3).standard_normal((sizes[2], 2))
            np.add.at(want, np.asarray(dst), edge[np.asarray(ids)])
        given = GRAPH, edge, *indices, np.ones((5, 1)), np.ones((4, 1))
        for _ in range(2):  # derived graphs are cached
            np.testing.assert_allclose(found(*given), want, rtol=1e-14)
        if len(expected) > 1:  # sources, too
            steps[-1] = step("aggregate", "y", {"x": "x"}, "h")
            found = model([*inputs, real("x", 1)], steps)
            x = np.random.default_rng(4).standard_normal((sizes[0], 1))
            want = np.zeros((sizes[1], 1))
            np.add.at(want, np.asarray(dst), x[np.asarray(src)])
            np.testing.assert_allclose(found(*given, x), want, rtol=1e-14)


def mlp():
    """Return a model of several steps and outputs, with shared values."""
    tensors = {"w": A.copy(), "b": np.ones((1, 2, 2)), "n": np.array(2.0)}
    steps = [
        step("linear", "h", {"x": "x", "weight": "w"}),
        step("tanh", "t", {"x": "h"}),
        step("multiply", "p", {"x1": "t", "x2": "h"}),
        step("add", "y", {"x1": "p", "x2": "n"}),
        step("aggregate", "z", {"x": "y"}, "g"),
        step("multiply", "u", {"x1": "z", "x2": "b"}),
    ]
    inputs = [{"name": "g", "kind": "graph", "num_src": "x", "num_dst": "x"}, real("x", 3)]
    return model(inputs, steps, tensors, outputs=["y", "u"])


SQUARE = pyops.Graph([0, 1, 2, 4, 4], [1, 1, 0, 2, 3], 5)


def test_several_results():
    found = mlp()
    y, u = found(SQUARE, X)
    h = X @ A.T
    np.testing.assert_allclose(y, np.tanh(h) * h + 2)
    np.testing.assert_allclose(u, pyops.aggregate(SQUARE, y) * np.ones(4))
    np.testing.assert_array_equal(found(g=np.stack([SQUARE.src, SQUARE.dst]), x=X)[1], u)
    both = found.backward(SQUARE, X, y, u)
    parts = found.backward(SQUARE, X, y, None), found.backward(SQUARE, X, gy1=None, gy2=u)
    for name, gradient in both.items():
        np.testing.assert_allclose(gradient, parts[0][name] + parts[1][name], rtol=1e-13)
        assert gradient.shape == {**found.parameters, "x": X}[name].shape
    wanted = found.backward(SQUARE, X, y, u, wanted=["b"])
    assert wanted.keys() == {"b"}
    np.testing.assert_array_equal(wanted["b"], both["b"])


def test_gradients_share_no_memory():
    """Gradients that pass a sum unchanged are arrays of their own."""
    steps = [step("add", "s", {"x1": "x", "x2": "w"}), step("add", "y", {"x1": "s", "x2": "v"})]
    found = model([real("x", 3)], steps, {"w": X.copy(), "v": X.copy()})
    gy = np.ones_like(X)
    gradients = found.backward(X, gy)
    gradients["w"] += 1
    np.testing.assert_array_equal(gy, 1)
    np.testing.assert_array_equal(gradients["x"], 1)
    np.testing.assert_array_equal(gradients["v"], 1)


VIEWS = {
    "itself": ([], "x", X),
    "parameter": ([], "w", A),
    "transpose": ([step("transpose", "y", XY)], "y", X.T),
    "slice": ([step("slice", "y", {"x": "w"}, axis=1, start=1)], "y", A[:, 1:]),
    "reshape": ([step("reshape", "y", XY, shape=[-1])], "y", X.ravel()),
}


@pytest.mark.parametrize("case", VIEWS)
def test_results_share_no_memory(case):
    """Results and gradients are arrays of their own, in C order, whatever the steps."""
    steps, output, expected = VIEWS[case]
    found = model([real("x", 3)], steps, {"w": A.copy()}, outputs=[output, output])
    x, gy, h = X.copy(), expected.copy(), X.copy()
    results = found(x)
    gradients = found.backward(x, gy, gy)
    tangents = found.jvp(x, tangents={"x": h, "w": A.copy()})
    seconds = found.double_backward(x, gy, gy, cotangents={"x": h, "w": A.copy()})
    every = [*results, *gradients.values(), *tangents, *seconds.values()]
    for array in every:
        assert array.flags.carray
        array += 1
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(found.parameters["w"], A)
    np.testing.assert_array_equal(gy, expected)
    np.testing.assert_array_equal(h, X)
    np.testing.assert_array_equal(results[0], expected + 1)


def test_training_in_place():
    found = mlp()
    before = found(SQUARE, X)[0]
    found.parameters["w"] *= 0
    after = found(SQUARE, X)[0]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, 2.0)
    found.parameters["w"] = np.ones((2, 2))
    with pytest.raises(ValueError, match=r"Model: parameters: w: expected float64 of shape"):
        found(SQUARE, X)


def test_files(tmp_path):
    """What `save` writes is read again, with parameters as they are and copies of tied ones."""
    path = tmp_path / "model.safetensors"
    text = json.dumps(
        program(
            [real("x", 3)],
            [step("linear", "y", {"x": "x", "weight": "w"})],
            parameters=["w"],
            tied={"copy": "w"},
        )
    )
    _container.write(path, {"w": A, "copy": A, "count": np.array(3)}, {"pyops.model": text})
    found = load(path)
    found.parameters["w"] *= 2
    found.save(path)
    again = load(path)
    np.testing.assert_array_equal(again.parameters["w"], 2 * A)
    np.testing.assert_array_equal(again.buffers["copy"], 2 * A)
    np.testing.assert_array_equal(again(X), found(X))
    assert again.hyperparameters == {"cutoff": 5.0}
    assert repr(again) == "Model(Net(x), 12 parameters, float64)"
    small = load(path, dtype=np.float32)
    assert small(X.astype(np.float32)).dtype == np.float32
    with pytest.raises(TypeError, match=r"Model: x: expected float32 like the parameters, got fl"):
        small(X)
    with pytest.raises(TypeError, match=r"load: dtype: expected float32 or float64, got int64"):
        load(path, dtype=int)
    _container.write(path, {}, {})
    with pytest.raises(ValueError, match=r"model.safetensors: expected a program, 'pyops.model'"):
        load(path)


LINEAR = step("linear", "y", {"x": "x", "weight": "w"})
GAT = step("gat", "y", {"x_src": "x", "x_dst": "x", "attention": "v"}, "g", heads=1)
KINDS = {"w": "real", "v": "real", "k": "index", "none": "none"}


def wrong(*steps, **others):
    return program([real("x", 3), {"name": "g", "kind": "graph"}], steps or [LINEAR]) | others


WRONG = {
    "version": (wrong(version=2), "version: expected 1, got 2"),
    "truth as version": (wrong(version=True), "version: expected 1, got True"),
    "key": (wrong(other=1), "expected the keys version, name"),
    "no list": (wrong(steps={}), "steps: expected a list, got dict"),
    "no object": (wrong(steps=[1]), r"steps\[0\]: expected an object, got int"),
    "key of a step": (wrong(LINEAR | {"code": ""}), r"steps\[0\]: expected the keys call, result"),
    "kind": (wrong(inputs=[{"name": "x", "kind": "text"}]), r"inputs\[0\]: kind: expected one of"),
    "columns": (wrong(inputs=[real("x", -1)]), r"inputs\[0\]: columns: expected an integer"),
    "key of an input": (
        wrong(inputs=[{"name": "g", "kind": "graph", "columns": 1}]),
        r"inputs\[0\]: expected the keys name, kind, num_src, num_dst",
    ),
    "size": (
        wrong(inputs=[real("x", 3), {"name": "g", "kind": "graph", "num_src": "g"}]),
        "g: num_src, num_dst: expected names of inputs with rows",
    ),
    "call": (wrong(step("eval", "y")), r"steps\[0\]: call: expected one of .*, got 'eval'"),
    "name": (wrong(step("tanh", "y", {"x": "z"})), r"steps\[0\]: tanh: expected a name that is de"),
    "later name": (
        wrong(step("tanh", "h", {"x": "y"}), step("tanh", "y", {"x": "h"})),
        r"steps\[0\]: tanh: expected a name that is defined, got 'y'",
    ),
    "name twice": (wrong(LINEAR, LINEAR), r"steps\[1\]: linear: expected a name that is not used"),
    "input as tensor": (wrong(inputs=[real("w", 3)]), r"inputs\[0\]: expected a name that is not"),
    "missing input": (
        wrong(step("linear", "y", {"x": "x"})),
        r"steps\[0\]: linear: inputs: expected x, weight, bias, got 'x'",
    ),
    "unknown input": (wrong(step("tanh", "y", {"x": "x", "z": "x"})), "tanh: inputs: expected x"),
    "kind of an input": (
        wrong(step("tanh", "y", {"x": "g"})),
        "tanh: x: expected a value of kind real, got 'g' of kind graph",
    ),
    "tensor of another type": (wrong(step("tanh", "y", {"x": "none"})), "got 'none' of kind none"),
    "no graph": (wrong({k: v for k, v in GAT.items() if k != "graph"}), "gat: graph: expected the"),
    "real graph": (
        wrong(GAT | {"graph": "x"}),
        "gat: graph: expected the name of a graph, got 'x'",
    ),
    "graph too many": (wrong(LINEAR | {"graph": "g"}), "linear: graph: expected none, got 'g'"),
    "option of an operator": (
        wrong(GAT | {"options": {"heads": 0}}),
        "gat: heads: expected an int",
    ),
    "missing option": (wrong(GAT | {"options": {}}), "gat: heads: expected"),
    "unknown option": (
        wrong(GAT | {"options": {"heads": 1, "code": 1}}),
        "gat: options: expected heads, .*, got 'code'",
    ),
    "option of a call": (
        wrong(step("softmax", "y", {"x": "x"}, axis=2)),
        "softmax: axis: expected 0, 1 or -1, got 2",
    ),
    "no option of a call": (wrong(step("softmax", "y", {"x": "x"})), "axis: expected 0, 1 or -1"),
    "object as option": (
        wrong(step("softmax", "y", {"x": "x"}, axis={})),
        r"steps\[0\]: options: axis: expected a number, a text",
    ),
    "two unknown lengths": (
        wrong(step("reshape", "y", {"x": "x"}, shape=[-1, -1])),
        "reshape: shape: expected one or two lengths",
    ),
    "operand twice": (
        wrong(step("add", "y", {"x1": "x", "x2": "x"}, x2=1)),
        "add: inputs: expected x1, x2",
    ),
    "no operand": (wrong(step("add", "y", x1=1)), "add: inputs: expected x1, x2"),
    "reversed edges": (
        wrong(step("edge_to_edge", "y", {"h": "x"}, "g", exclude="image")),
        "edge_to_edge: reverse: expected it if exclude is 'image', and only then",
    ),
    "neither": (wrong(step("aggregate", "y", {"weight": "v"}, "g")), "expected x or edge, got nei"),
    "output": (wrong(outputs=["g"]), "outputs: expected names of real values, got 'g'"),
    "no output": (wrong(outputs=[]), "outputs: expected one or more, got none"),
    "parameter": (wrong(parameters=["x"]), "parameters: expected names of real tensors, got 'x'"),
    "parameter twice": (wrong(parameters=["w", "w"]), "parameters: expected different names"),
    "tied": (wrong(tied={"w": "q"}), "tied: expected names of tensors, got 'w': 'q'"),
    "use of a copy": (wrong(tied={"w": "v"}), "linear: expected a name that is defined, got 'w'"),
    "hyperparameters": (wrong(hyperparameters={"a": []}), "hyperparameters: a: expected a number"),
    "empty name": (wrong(name=""), "name: expected a text, got ''"),
    "concat of nothing": (wrong(step("concat", "y", axis=0)), "concat: inputs: expected"),
    "gap in concat": (
        wrong(step("concat", "y", {"x1": "x", "x3": "x"}, axis=0)),
        "concat: inputs: expected x1, x2, got 'x1, x3'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_programs(case):
    given, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        read_program(json.dumps(given), KINDS)


def replaced(value, rng):
    """Return a program with one value at a random place replaced, repeated or removed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(ODD)[0] if rng.random() < 0.8 else [value, value]
    found = dict(value) if isinstance(value, dict) else list(value)
    keys = [*found] if isinstance(found, dict) else range(len(found))
    key = keys[int(rng.integers(len(keys)))]
    if rng.random() < 0.1:
        del found[key]
    else:
        found[key] = replaced(found[key], rng)
    return found


ODD = np.empty((14, 1), object)
ODD[:, 0] = [None, True, -1, 0, 2, 1e300, 2**70, "", "x", "y", "w", "gat", [], {}]


def test_mutated_programs(rng):
    """Programs with random faults are read and evaluated, or refused by an error of Python."""
    given = program(
        [{"name": "g", "kind": "graph", "num_src": "x", "num_dst": "x"}, real("x", 3)],
        [
            step("linear", "h", {"x": "x", "weight": "w"}),
            step("add_self_loops", "l", graph="g", mode="replace"),
            step("gat", "a", {"x_src": "h", "x_dst": "h", "attention": "v"}, "l", heads=2),
            step("reshape", "r", {"x": "a"}, shape=[-1, 2]),
            step("softmax", "y", {"x": "r"}, axis=1),
        ],
        parameters=["w", "v"],
        tied={"k": "v"},
    )
    tensors = {"w": A, "v": np.ones(8), "k": np.ones(8)}
    refused = called = 0
    for _ in range(10_000):
        wrong = given
        for _ in range(rng.integers(1, 3)):
            wrong = replaced(wrong, rng)
        try:
            found = Model(read_program(json.dumps(wrong), dict.fromkeys(tensors, "real")), tensors)
        except ValueError:
            refused += 1
            continue
        with contextlib.suppress(ValueError, TypeError, IndexError):
            found(SQUARE, X)
            called += 1
    assert refused > 5_000
    assert called > 300


def test_depth():
    with pytest.raises(ValueError, match=r"pyops.model: expected less depth"):
        read_program('{"a":' + "[" * 200_000 + "]" * 200_000 + "}", {})


CALLED = {
    "rows of a vector": (step("linear", "y", {"x": "v", "weight": "a"}), "x: expected a matrix"),
    "columns": (
        step("linear", "y", {"x": "x", "weight": "b"}),
        "x: expected 2 columns like weight",
    ),
    "rows": (step("matmul", "y", {"a": "x", "b": "a"}), "b: expected 3 rows, as a has columns"),
    "vector": (step("transpose", "y", {"x": "v"}), "x: expected a matrix, got shape"),
    "concat": (step("concat", "y", {"x1": "x", "x2": "b"}, axis=0), "x2: expected a shape like"),
    "slice": (step("slice", "y", {"x": "x"}, axis=1, start=4), "start, stop: expected 0 to 3"),
    "axis": (step("slice", "y", {"x": "v"}, axis=1, start=0), "axis: expected less than 1, got 1"),
    "reshape": (
        step("reshape", "y", {"x": "x"}, shape=[-1, 2]),
        "shape: expected as many elements",
    ),
    "index": (step("gather", "y", {"x": "b", "index": "i"}), "index: expected indices"),
    "scatter": (step("scatter_sum", "y", {"x": "v", "index": "i"}), "index: expected 3 elements"),
    "operator": (step("aggregate", "y", {"x": "v"}, "g"), "x: expected shape"),
    "broadcast": (step("add", "y", {"x1": "x", "x2": "a"}), "x2: expected a shape"),
}


@pytest.mark.parametrize("case", CALLED)
def test_wrong_calls(case):
    """Errors of a call name the step."""
    given, message = CALLED[case]
    inputs = [{"name": "g", "kind": "graph"}, {"name": "i", "kind": "index"}, real("x", 3)]
    found = model(inputs, [given], {"a": A, "b": B, "v": V})
    with pytest.raises((ValueError, IndexError), match=rf"steps\[0\]: {given['call']}: {message}"):
        found(GRAPH, INDEX, X)


NOT_ARGUMENTS = {
    "too few": (lambda m: m(SQUARE), TypeError, "Model: expected g, x, got 1 arguments"),
    "twice": (lambda m: m(SQUARE, X, x=X), TypeError, "x: expected one value"),
    "unknown": (lambda m: m(SQUARE, z=X), TypeError, "Model: z: there is no such input"),
    "columns": (lambda m: m(SQUARE, X[:, :2]), ValueError, r"x: expected shape \(rows, 3\), got"),
    "list": (lambda m: m(SQUARE, X.tolist()), TypeError, "x: expected a NumPy array, got list"),
    "graph": (lambda m: m(X, X), TypeError, "g: expected a pyops.Graph or integers of shape"),
    "outside": (lambda m: m(np.array([[5], [0]]), X), IndexError, "src: expected indices"),
    "no gy": (lambda m: m.backward(SQUARE, X, None, None), TypeError, "gy1: expected an array"),
    "gy": (lambda m: m.backward(SQUARE, X, X, None), ValueError, r"gy1: expected shape \(5, 4\)"),
    "wanted": (
        lambda m: m.backward(SQUARE, X, None, X, wanted="x"),
        TypeError,
        "wanted: expected a collection of names, got 'x'",
    ),
    "unknown wanted": (
        lambda m: m.backward(SQUARE, X, None, X, wanted=["g"]),
        ValueError,
        "wanted: expected names of real inputs and parameters, got 'g'",
    ),
    "tangents": (
        lambda m: m.jvp(SQUARE, X, tangents={"x": A}),
        ValueError,
        "tangents: x: expected",
    ),
    "parameters": (
        lambda m: m(SQUARE, X, parameters={}),
        ValueError,
        "parameters: expected the key",
    ),
}


@pytest.mark.parametrize("case", NOT_ARGUMENTS)
def test_wrong_arguments(case):
    run, kind, message = NOT_ARGUMENTS[case]
    with pytest.raises(kind, match=message):
        run(mlp())


def test_third_derivatives():
    """Derivatives of second derivatives are refused."""
    from pyops.models._tape import Node, Tape

    tape = Tape(np.dtype(float))
    x = Node(X, needed=True)
    y = tape.operator("tanh", None, {"x": x}, {})
    (first,) = tape.gradients([(y, Node(X))], [x], again=True)
    (second,) = tape.gradients([(first, Node(X))], [x], again=True)
    with pytest.raises(NotImplementedError, match="expected at most second derivatives"):
        tape.gradients([(second, Node(X))], [x], again=True)


@pytest.mark.bare
def test_no_framework_is_imported(tmp_path):
    path = tmp_path / "model.safetensors"
    mlp().save(path)
    code = (
        "import sys, numpy as np, pyops\n"
        f"model = pyops.models.load({str(path)!r})\n"
        "y, u = model(np.zeros((2, 3), int)[:2, :2], np.ones((4, 3)))\n"
        "model.backward(np.zeros((2, 2), int), np.ones((4, 3)), y, u)\n"
        "assert not {'torch', 'jax', 'safetensors'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_model_is_public():
    assert {*pyops.models.__all__} == {"Input", "Model", "load", "save"}
    assert isinstance(mlp(), Model)
