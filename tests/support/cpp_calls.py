"""Compares libpyops_torch with the NumPy front end, in a process that does not import pyops.torch.

python -m tests.support.cpp_calls LIBRARY STEP, of which it compares every case in so many
"""

import importlib
import re
import sys
import zlib

import numpy as np
import pytest
import torch

from .cases import CASES, OPERATORS, PHASES

TYPES = np.float64, np.float32


def tensor_of(array):
    return None if array is None else torch.from_numpy(np.array(array))


def strided(tensor):
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def arguments(problem, phase, wanted=None):
    """Return the arguments of a registered function; every second array is not contiguous."""
    graph, signature = problem.graph, problem.op.signature
    place = []
    if graph is not None:
        ids = None if graph.num_entries == graph.num_edges else graph.edge_ids
        place = [*map(tensor_of, (graph.src, graph.dst, ids))]
        place += [graph.num_src, graph.num_dst, graph.num_edges]
    names = problem.names("forward" if phase == "attention" else phase)
    tensors = [tensor_of(problem.arrays[name]) for name in names]
    tensors[::2] = [t if t is None else strided(t) for t in tensors[::2]]
    options = {o.name: o.default for o in signature.options.values()} | dict(problem.options)
    values = [options[name] for name in signature.options]
    values += [tensor_of(options.get(name)) for name in signature.indexed]
    return [*place, *tensors, *values, *([wanted] if wanted else [])]


def call(problem, phase, wanted=None):
    name = problem.op.name if phase == "forward" else f"{problem.op.name}_{phase}"
    found = getattr(torch.ops.pyops, name)(*arguments(problem, phase, wanted))
    return [found] if isinstance(found, torch.Tensor) else [*found]


def compare(case, dtype):
    """Compare every phase in all bits; the requested gradients change from case to case."""
    problem = case.problem().map(lambda array: array.astype(dtype))
    inputs = [*problem.op.signature.inputs]
    given = [name for name in inputs if problem.arrays[name] is not None]
    for phase in PHASES:
        wanted, flags = None, None
        if phase.endswith("backward"):
            known = [*inputs, *(["gy"] if phase.startswith("double") else [])]
            some = [n for n in known if n in (*given, "gy")]
            wanted = some[zlib.crc32(str(case).encode()) % 2 :] or some
            flags = [name in wanted for name in known]
        expected = problem.run(phase, **({"wanted": wanted} if wanted else {}))
        expected = [e for e in expected if e is not None]
        found = call(problem, phase, flags)
        assert len(found) == len(expected), (str(case), phase)
        for one, other in zip(found, expected, strict=True):
            same = one.numpy().tobytes() == other.tobytes() and one.shape == other.shape
            assert same, (str(case), phase, dtype.__name__)
    if problem.op.signature.attention:
        _, alpha = problem.op(
            *problem.arguments("forward"), return_attention=True, **problem.options
        )
        assert np.array_equal(call(problem, "attention")[0].numpy(), alpha), str(case)


def differentiate(name):
    """Compare first and second derivatives by autograd with the phases."""
    case = next(c for c in CASES if c.op == name and c.graph == "random" and not c.absent)
    problem = case.problem()
    inputs = [*problem.op.signature.inputs]
    place = 6 if problem.graph is not None else 0
    values = arguments(problem, "forward")
    leaves = [v.requires_grad_() for v in values[place : place + len(inputs)]]
    gy = tensor_of(problem.arrays["gy"]).requires_grad_()
    hs = [tensor_of(problem.arrays["h" + n]) for n in inputs]
    y = getattr(torch.ops.pyops, name)(*values)
    first = torch.autograd.grad(y, leaves, gy, create_graph=True)
    second = torch.autograd.grad(first, [*leaves, gy], hs, allow_unused=True)
    for found, phase in ((first, "backward"), (second, "double_backward")):
        for one, other in zip(found, problem.run(phase), strict=True):
            one = torch.zeros(other.shape) if one is None else one
            np.testing.assert_allclose(one.detach().numpy(), other, rtol=1e-12, atol=1e-12)
    values = arguments(problem, "jvp")
    leaves = [v.requires_grad_() for v in values[place : place + 2 * len(inputs)]]
    dy = getattr(torch.ops.pyops, f"{name}_jvp")(*values)
    by_tangents = torch.autograd.grad(dy, leaves, gy.detach())[len(inputs) :]
    for one, other in zip(by_tangents, problem.run("backward"), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-12, atol=1e-12)


def outcome(function, problem, phase):
    """Return the results in all bits, or the type of an error and its message."""
    try:
        return [array.tobytes() for array in function(problem, phase)]
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        kind = ValueError if isinstance(error, OverflowError) else type(error)
        return kind, str(error)


def results(problem, phase):
    return [t.numpy() for t in call(problem, phase, flags(problem, phase))]


def expected_results(problem, phase):
    return [a for a in problem.run(phase) if a is not None]


def flags(problem, phase):
    if not phase.endswith("backward"):
        return None
    inputs = problem.op.signature.inputs
    return [problem.arrays[n] is not None for n in inputs] + [True] * phase.startswith("double")


CHANGES = {
    "axis": lambda a: a[None],
    "row": lambda a: np.concatenate([a, a[:1]]),
    "column": lambda a: np.concatenate([a, a[..., :1]], -1),
    "type": lambda a: a.astype(np.float32),
    "integers": lambda a: a.astype(np.int64),
}
"""Arrays that do not fit the others, or change a size."""


def refuse_arrays(name):
    """Compare calls with each array changed: both raise the same error or have the same results."""
    refused = 0
    case = next(c for c in CASES if c.op == name and c.graph == "random" and not c.absent)
    problem = case.problem()
    for phase in PHASES:
        for array in problem.names(phase):
            for change in CHANGES.values():
                wrong = problem.having(**{array: change(problem.arrays[array])})
                expected = outcome(expected_results, wrong, phase)
                found = outcome(results, wrong, phase)
                assert found == expected, (name, phase, array, found, expected)
                refused += isinstance(expected, tuple)
    return refused


GRAPH = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), None, 3, 3, 3
LONG = torch.tensor([0, 1, 2, 0])
OF_GRAPH = {
    "Graph: src: expected indices from 0 to num_src-1=1, got 2 at 2": {3: 2},
    "Graph: dst: expected indices from 0 to num_dst-1=1, got 2 at 1": {4: 2},
    "Graph: src: expected indices from 0 to num_src-1=2, got -1 at 1": {
        0: torch.tensor([0, -1, 2])
    },
    "Graph: src: expected indices from 0 to num_src-1=2, got 4294967296 at 2": {
        0: torch.tensor([0, 1, 2**32])
    },
    "Graph: dst: expected len(src)=3, got 4": {1: LONG},
    "Graph: num_edges: expected len(src)=3, got 4": {5: 4},
    "Graph: edge_ids: expected len(src)=3, got 4": {2: LONG},
    "Graph: edge_ids: expected indices from 0 to num_edges-1=1, got 2 at 2": {2: LONG[:3], 5: 2},
    "Graph: src: expected int32 or int64, got float32": {0: torch.zeros(3)},
    "Graph: dst: expected one dimension, got shape (1, 3)": {1: LONG[None, :3]},
    "Graph: num_src: expected at least 0, got -1": {3: -1},
    "Graph: num_dst: expected at most 2147483646, got 2147483647": {4: 2**31 - 1},
}
"""Changes of the arguments for a graph, by the message of the error."""
X, ATTENTION = torch.ones(3, 2), torch.ones(4)
GAT = "gat", (*GRAPH, X, X, ATTENTION, None, None, 1, True, "relu", 0.2)
EDGES = "edge_to_edge", (*GRAPH, X, "image", None)
GATHER = "aggregate", (*GRAPH, X, None, None, None, "sum", 1.0, 1.0)
NETWORK = "edge_mlp", (*GRAPH, X, torch.ones(12), None, None, 2, 1, "relu", "none", True)
OF_OPTIONS = [
    (GAT, {11: 0}, "gat: heads: expected an integer from 1 to 2**31 - 1, got 0"),
    (GAT, {13: "step"}, "gat: activation: expected one of ('leaky_relu', 'identity', "),
    (GAT, {14: float("inf")}, "gat: negative_slope: expected a finite number, got inf"),
    (GAT, {6: X.to_sparse()}, "pyops::gat"),
    (GATHER, {6: None}, "aggregate: expected x or edge, got neither"),
    (NETWORK, {}, "edge_mlp: residual: expected out_features = edge_width, got out_features=2 and"),
    (EDGES, {}, "edge_to_edge: reverse: expected row numbers with exclude='image', got None"),
    (EDGES, {7: "none", 8: LONG}, "edge_to_edge: reverse: expected None without exclude='image'"),
    (EDGES, {8: LONG}, "edge_to_edge: reverse: expected num_edges=3 numbers, got 4"),
    (EDGES, {8: LONG[:3] + 1}, "edge_to_edge: reverse: expected indices from -1 to num_edges-1=2"),
    (EDGES, {8: -LONG[:3]}, "edge_to_edge: reverse: expected indices from -1 to num_edges-1=2, go"),
    (EDGES, {8: torch.tensor([1, 2, 0])}, "edge_to_edge: reverse: expected the reverse of an edge"),
    (EDGES, {8: torch.tensor([1, 0, -1])}, "edge_to_edge: reverse: expected the reverse of an edg"),
]
"""Calls, changes of their arguments, and the start of the message."""


def refuse(call, changes, message):
    name, arguments = call
    arguments = [changes.get(i, a) for i, a in enumerate(arguments)]
    with pytest.raises(
        (TypeError, ValueError, IndexError, NotImplementedError), match=re.escape(message)
    ):
        getattr(torch.ops.pyops, name)(*arguments)


def refuse_wanted():
    """Refuse flags of another number, and gradients by absent inputs."""
    name, (*given, heads, concat, activation, slope) = GAT
    back = f"{name}_backward"
    options = heads, concat, activation, slope
    wrong = [True] * 3, "gat.backward: wanted: expected 5 flags, got 3"
    absent = [False] * 4 + [True], "gat.backward: wanted: expected names of inputs given, mask is"
    for flags, message in wrong, absent:
        refuse((back, (*given, torch.ones(3, 2), *options, flags)), {}, message)


def third_derivative():
    x = torch.ones(3, 2, requires_grad=True)
    y = torch.ops.pyops.elem_scale(x, x[0]).square().sum()
    for _ in range(2):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives: pyops ends at the second"):
        torch.autograd.grad(y.sum(), x)


HALVES = torch.bfloat16, torch.float16


def round_once(name):
    """Compare calls with half precision with float32 ones whose results are rounded."""
    case = next(c for c in CASES if c.op == name and c.graph == "random" and not c.absent)
    for kind in HALVES:
        rounded = case.problem().map(lambda a, kind=kind: torch.tensor(a).to(kind).float().numpy())
        for phase in PHASES:
            half = arguments(rounded, phase, flags(rounded, phase))
            first = 6 if rounded.graph is not None else 0
            for i in range(first, first + len(rounded.names(phase))):
                half[i] = half[i].to(kind)
            named = name if phase == "forward" else f"{name}_{phase}"
            found = getattr(torch.ops.pyops, named)(*half)
            found = [found] if isinstance(found, torch.Tensor) else found
            expected = [torch.tensor(a).to(kind) for a in expected_results(rounded, phase)]
            assert [*map(torch.equal, found, expected)] == [True] * len(expected), (name, phase)


def main(library, step=1):
    torch.ops.load_library(library)
    assert "pyops.torch" not in sys.modules
    with pytest.raises(ImportError, match="expected a process without libpyops_torch"):
        importlib.import_module("pyops.torch")
    for number, case in enumerate(CASES[:: int(step)]):
        compare(case, TYPES[number % 2])
    for name in OPERATORS:
        differentiate(name)
    refused = sum(map(refuse_arrays, OPERATORS))
    for message, changes in OF_GRAPH.items():
        refuse(GAT, changes, message)
    for arguments in OF_OPTIONS:
        refuse(*arguments)
    refuse_wanted()
    third_derivative()
    for name in OPERATORS:
        round_once(name)
    print(f"{len(CASES)} cases, {refused} refusals")


if __name__ == "__main__":
    main(*sys.argv[1:])
