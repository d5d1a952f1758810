"""Programs of one call each, with inputs and the result by Python."""

import numpy as np

import pyops
from pyops import _functions

from ....mutants.fault_sites import OPERATORS
from ....support.model_files import program
from ..compilers import cases

SRC, DST = np.array([0, 4, 1, 1, 3, 2, 2]), np.array([0, 0, 1, 3, 3, 3, 0])
GRAPH = pyops.Graph(SRC, DST, 5, 4)
MATRIX, VECTOR, INDEX = ("m", "real", {}), ("v", "real", {"columns": None}), ("i", "index", {})
G = ("g", "graph", {})


def reals(rng, shape):
    """Draw values where all functions are defined and smooth."""
    return 0.2 + 0.7 * rng.random(shape)


def operator_case(name, rng):
    """Return a program of one operator, its inputs and its result."""
    op = getattr(pyops, name)
    signature = op.signature
    sizes = cases.sizes_of(signature.sizes) | {"num_entries": 7}
    options = {o.name: sizes[o.name] for o in signature.options.values() if o.is_size}
    chosen = {o.name: o.default for o in signature.options.values() if o.choices}
    for key, size in signature.follows(chosen, []).items():
        sizes[key] = size.value(sizes)
    shapes = {n: [s.value(sizes) for s in i.forms[-1]] for n, i in signature.inputs.items()}
    given = {n: reals(rng, (s[0], -1) if len(s) > 2 else s) for n, s in shapes.items()}
    kinds = [(n, "real", {"columns": None} if a.ndim == 1 else {}) for n, a in given.items()]
    graph = [G] * signature.has_graph
    step = ("y", name, {n: n for n in given}, options, "g" if graph else None)
    graphs = [GRAPH] * signature.has_graph
    return program([*graph, *kinds], [step]), given, op(*graphs, *given.values(), **options)


def function_cases(rng):
    """Yield programs of every elementwise function, their inputs and results."""
    matrix, vector = reals(rng, (4, 3)), reals(rng, 3)
    for function in _functions.PUBLIC:
        op = getattr(pyops, function.name)
        if function.arity == 1:
            options = {function.option[0]: 0.3} if function.option[0] else {}
            step = ("y", function.name, {"x": "m"}, options)
            yield program([MATRIX], [step]), {"m": matrix}, op(matrix, **options)
            continue
        both = {"x1": "m", "x2": "v"}
        yield (
            program([MATRIX, VECTOR], [("y", function.name, both)]),
            {"m": matrix, "v": vector},
            op(matrix, vector),
        )
        for one, other in (("x1", "x2"), ("x2", "x1")):
            step = ("y", function.name, {one: "m"}, {other: 0.75})
            number = np.full((), 0.75)
            pair = (matrix, number) if one == "x1" else (number, matrix)
            yield program([MATRIX], [step]), {"m": matrix}, op(*pair)


def reduction_cases(rng):
    matrix, vector = reals(rng, (4, 3)), reals(rng, 4)
    for name in "sum", "mean", "max", "min":
        for axis in None, 0, 1, -1:
            for keepdims in True, False:
                step = ("y", name, {"x": "m"}, {"axis": axis, "keepdims": keepdims})
                expected = getattr(matrix, name)(axis=axis, keepdims=keepdims)
                yield program([MATRIX], [step]), {"m": matrix}, np.atleast_1d(expected)
        step = ("y", name, {"x": "v"}, {"axis": 0})
        yield program([VECTOR], [step]), {"v": vector}, np.atleast_1d(getattr(vector, name)())


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def scattered(x, index, rows):
    result = np.zeros((rows, *x.shape[1:]))
    np.add.at(result, index, x)
    return result


def generic_cases(rng):
    """Yield programs of the other calls of real values, their inputs and results."""
    m, w, v, i = reals(rng, (4, 3)), reals(rng, (2, 3)), reals(rng, 4), np.array([2, 0, 2, 3, 3])
    n = reals(rng, (4, 2))
    inputs = {"m": m, "w": w, "v": v, "i": i, "n": n}
    kinds = [MATRIX, ("w", "real", {}), VECTOR, INDEX, ("n", "real", {})]
    x, bias = {"x": "m"}, reals(rng, 2)
    norm = (m - m.mean(1, keepdims=True)) / np.sqrt(m.var(1, keepdims=True) + 0.1)
    rows = [
        ("linear", {"x": "m", "weight": "w"}, {}, m @ w.T),
        ("linear", {"x": "m", "weight": "w", "bias": "b"}, {}, m @ w.T + bias),
        ("matmul", {"a": "w", "b": "t"}, {}, w @ m.T),
        ("transpose", x, {}, m.T),
        ("layer_norm", x, {"eps": 0.1}, norm),
        ("layer_norm", {**x, "weight": "m0", "bias": "m1"}, {"eps": 0.1}, norm * m[0] + m[1]),
        *(("softmax", x, {"axis": axis}, softmax(m, axis)) for axis in (0, 1, -1)),
        ("softmax", {"x": "v"}, {"axis": 0}, softmax(v, 0)),
        *(("log_softmax", x, {"axis": a}, np.log(softmax(m, a))) for a in (0, -1)),
        ("concat", {"x1": "m", "x2": "n", "x3": "m"}, {"axis": 1}, np.hstack([m, n, m])),
        ("concat", {"x1": "m", "x2": "w"}, {"axis": 0}, np.vstack([m, w])),
        ("concat", {"x1": "v", "x2": "v"}, {"axis": -1}, np.hstack([v, v])),
        ("concat", {f"x{k}": "v" for k in range(1, 24)}, {"axis": 0}, np.tile(v, 23)),
        ("slice", x, {"axis": 1, "start": 1, "stop": 3}, m[:, 1:3]),
        ("slice", x, {"axis": 0, "start": 2, "stop": None}, m[2:]),
        ("slice", {"x": "v"}, {"axis": 0, "start": 0, "stop": 2}, v[:2]),
        ("reshape", x, {"shape": [2, 6]}, m.reshape(2, 6)),
        ("reshape", x, {"shape": [-1, 6]}, m.reshape(2, 6)),
        ("reshape", x, {"shape": [6, -1]}, m.reshape(6, 2)),
        ("reshape", x, {"shape": [-1]}, m.ravel()),
        ("gather", {**x, "index": "i"}, {}, m[i]),
        ("gather", {"x": "v", "index": "i"}, {}, v[i]),
        ("scatter_sum", {"x": "mi", "index": "i"}, {}, scattered(m[i], i, 4)),
        ("scatter_sum", {"x": "mi", "index": "i", "like": "i"}, {}, scattered(m[i], i, 5)),
        ("scatter_sum", {"x": "vi", "index": "i", "like": "mi"}, {}, scattered(v[i], i, 5)),
        ("full", {"like": "m"}, {"value": 1.5, "columns": 2}, np.full((4, 2), 1.5)),
        ("full", {"like": "i"}, {"value": -2}, np.full(5, -2.0)),
        ("constant", {}, {"values": [1, 2.5, -1e-3]}, np.array([1, 2.5, -1e-3])),
        ("less", {"x1": "m", "x2": "m0"}, {}, m < m[0]),
        ("less", {"x2": "m"}, {"x1": 0.5}, m > 0.5),
        ("equal", {"x1": "m", "x2": "m0"}, {}, m == m[0]),
    ]
    before = [
        ("t", "transpose", x),
        ("m0", "slice", {"x": "flat"}, {"axis": 0, "start": 0, "stop": 3}),
        ("m1", "slice", {"x": "flat"}, {"axis": 0, "start": 3, "stop": 6}),
        ("mi", "gather", {**x, "index": "i"}),
        ("vi", "gather", {"x": "v", "index": "i"}),
        ("b", "constant", {}, {"values": [*map(float, bias)]}),
    ]
    before.insert(0, ("flat", "reshape", x, {"shape": [-1]}))
    for call, given, options, expected in rows:
        yield program(kinds, [*before, ("y", call, given, options)]), inputs, expected


def graph_cases(rng):
    """Yield programs of the calls of graphs, whose degrees and features show their entries."""
    edge, x = reals(rng, (11, 2)), reals(rng, (5, 2))
    relation = np.array([1, 0, 1, 1, 0, 2, 2])
    plain = SRC != DST
    src, dst, ids = SRC[plain], DST[plain], np.arange(7)[plain]
    loops = np.arange(4)
    own = np.array([0, 2, 9, 4])
    own[2] = 9
    entries = {
        "remove": (src, dst, ids, 5, 4),
        "replace": ([*src, *loops], [*dst, *loops], [*ids, *(7 + loops)], 5, 4),
        "complete": ([*src, *loops], [*dst, *loops], [*ids, *own], 5, 4),
        "reverse": (DST, SRC, np.arange(7), 4, 5),
        "per_edge": (SRC, np.arange(7), np.arange(7), 5, 7),
        "relation": (SRC, DST * 3 + relation, np.arange(7), 5, 12),
        "made": (SRC, DST, np.arange(7), 5, 5),
    }
    steps = {
        "remove": ("h", "remove_self_loops", {}, {}, "g"),
        "replace": ("h", "add_self_loops", {}, {"mode": "replace"}, "g"),
        "complete": ("h", "add_self_loops", {}, {"mode": "complete"}, "g"),
        "reverse": ("h", "reverse", {}, {}, "g"),
        "per_edge": ("h", "per_edge", {}, {}, "g"),
        "relation": ("h", "by_relation", {"index": "r"}, {"relations": 3}, "g"),
        "made": ("h", "graph_of", {"src": "s", "dst": "d", "num_src": "x", "num_dst": "x"}),
    }
    inputs = {"e": edge, "x": x, "r": relation, "s": SRC, "d": DST}
    kinds = [G, *(("r", "index", {}), ("s", "index", {}), ("d", "index", {}))]
    kinds += [("e", "real", {}), ("x", "real", {})]
    for name, (begins, ends, numbers, num_src, num_dst) in entries.items():
        kept = "e_kept"
        rows = {"remove": 7, "reverse": 7, "per_edge": 7, "relation": 7, "made": 7}.get(name, 11)
        graph = pyops.Graph(begins, ends, num_src, num_dst).with_edge_ids(numbers, rows)
        before = [steps[name], (kept, "slice", {"x": "e"}, {"axis": 0, "start": 0, "stop": rows})]
        summed = ("y", "aggregate", {"edge": kept}, {}, "h")
        yield program(kinds, [*before, summed]), inputs, pyops.aggregate(graph, edge=edge[:rows])
        softmax = ("y", "segment_softmax", {"logits": kept}, {}, "h")
        expected = pyops.segment_softmax(graph, edge[:rows])  # in the order of the entries
        yield program(kinds, [*before, softmax]), inputs, expected
        degrees = ("y", "in_degrees", {}, {}, "h")
        yield program(kinds, [*before, degrees]), inputs, graph.in_degrees()
        for call, wanted in (("sources", graph.src), ("destinations", graph.dst)):
            ends_step = [("k", call, {}, {}, "h"), ("l", "gather", {"x": "many", "index": "k"})]
            numbers_step = ("many", "constant", {}, {"values": [*map(float, range(12))]})
            yield program(kinds, [*before, numbers_step, *ends_step], outputs=["l"]), inputs, wanted


def paired_cases(rng):
    """Yield programs of the operators that may leave the reverse of an edge out."""
    pairs = np.array([[0, 1, 2, 2, 3], [1, 0, 0, 3, 2]])
    reverse = np.array([1, 0, -1, 4, 3])
    graph, given = pyops.Graph(*pairs, 4), {"s": pairs[0], "d": pairs[1], "r": reverse}
    made = ("made", "graph_of", {"src": "s", "dst": "d", "num_src": "x", "num_dst": "x"})
    kinds = [(n, "index", {}) for n in given]
    shapes = {"vectors": (5, 3), "radial": (5, 6), "embedding": (5, 4), "weights": (10, 2)}
    arrays = {n: reals(rng, shape) for n, shape in shapes.items()}
    rows = ("x", "real", {}), {"x": reals(rng, (4, 1))}
    options = {"num_spherical": 3, "exclude": "image"}
    for name, inputs, chosen in (
        ("dimenet_aggregate", arrays, options),
        ("edge_to_edge", {"h": arrays["embedding"]}, {"exclude": "image"}),
    ):
        step = ("y", name, {**{n: n for n in inputs}, "reverse": "r"}, chosen, "made")
        listed = [*kinds, rows[0], *((n, "real", {}) for n in inputs)]
        expected = getattr(pyops, name)(graph, *inputs.values(), reverse=reverse, **chosen)
        yield program(listed, [made, step]), {**given, **rows[1], **inputs}, expected


def all_cases():
    rng = np.random.default_rng(3)
    for name in OPERATORS:
        if name != "elementwise":
            yield name, operator_case(name, rng)
    for make in (function_cases, reduction_cases, generic_cases, graph_cases, paired_cases):
        for case in make(rng):
            yield f"{case[0]['steps'][-1]['call']} {case[0]['steps'][0]['call']}", case


def small_model():
    """Return tensors and program of a model with all sorts of options, inputs x and no graph."""
    rng = np.random.default_rng(1)
    tensors = {"w": rng.random((4, 3), np.float32), "b": rng.random(4, np.float32)}
    tensors |= {"i": np.array([0, 2, 1])}
    steps = [
        ("a", "linear", {"x": "x", "weight": "w", "bias": "b"}),
        ("c", "leaky_relu", {"x": "a"}, {"negative_slope": 0.25}),
        ("d", "concat", {"x1": "c", "x2": "x"}, {"axis": 1}),
        ("f", "slice", {"x": "d"}, {"axis": 1, "start": 2, "stop": 6}),
        ("h", "softmax", {"x": "f"}, {"axis": -1}),
        ("k", "gather", {"x": "h", "index": "i"}),
        ("l", "reshape", {"x": "k"}, {"shape": [-1, 2]}),
        (
            "m",
            "gno_kernel",
            {"coords": "l", "params": "p"},
            {"hidden": 2, "in_features": 1, "out_features": 2, "activation": "tanh"},
        ),
        ("y", "mean", {"x": "m"}, {"axis": 0, "keepdims": False}),
    ]
    tensors["p"] = rng.random(2 * 3 + 3 * 2, np.float32)
    made = program([("x", "real", {"columns": 3})], steps, ["w", "b", "p"])
    return tensors, made | {"hyperparameters": {"cutoff": 5.0}, "tied": {}}
