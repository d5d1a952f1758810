"""ONNX exports by tracing and by torch.export: equal results, or a refusal by name."""

import io
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx", exc_type=ImportError)
from onnx.reference import ReferenceEvaluator  # noqa: E402

from pyops.torch._graph import traceable  # noqa: E402
from pyops.torch._onnx import ATTENTION, VALUES, translated  # noqa: E402

from ...support.cases import VARIANTS, representative  # noqa: E402
from ...support.small_cases import OPERATORS  # noqa: E402
from .atoms.models import MODELS  # noqa: E402
from .examples import Example  # noqa: E402
from .layer_cases import CASES, case  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
REFUSED = "there is no translation of it to ONNX"
REFUSED_LAYERS = {
    **{f"{name}{more}": f"nn.{name}" for name in MODELS for more in ("", " cells")},
    "SphericalBasisLayer": "spherical_basis",
}
NOT_IN_TRACES = "sinh", "cosh"
"""Functions that the trace exporter does not support."""
BY_PROGRAM = "gat", "tanh"
LAYERS_BY_PROGRAM = "NNConv mean", "scatter wide"
"""Cases for the torch.export exporter, which takes seconds for each."""


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def flat(values):
    if isinstance(values, torch.Tensor):
        return [values]
    return [tensor for part in values for tensor in flat(part)]


def by_trace(module, given):
    """Return an ONNX model for tensors of any size, by tracing."""
    inputs = flat(given)
    names = [f"input{place}" for place in range(len(inputs))]
    axes = {
        name: {axis: f"{name}_{axis}" for axis in range(tensor.dim())}
        for name, tensor in zip(names, inputs, strict=True)
    }
    file = io.BytesIO()
    torch.onnx.export(
        module,
        given,
        file,
        dynamo=False,
        opset_version=18,
        input_names=names,
        dynamic_axes=axes,
    )
    return onnx.load_from_string(file.getvalue()), names


def by_program(module, given):
    free = torch.export.Dim.AUTO
    shapes = torch.utils._pytree.tree_map(lambda t: dict.fromkeys(range(t.dim()), free), given)
    program = torch.onnx.export(
        module, given, dynamo=True, verbose=False, dynamic_shapes=(tuple(shapes),)
    )
    model = program.model_proto
    return model, [value.name for value in model.graph.input]


def assert_runs(exported, given, expected):
    """Assert the results of the model, which may have dropped unused inputs."""
    model, names = exported
    found = {value.name for value in model.graph.input}
    held = dict(zip(names, flat(given), strict=True))
    results = ReferenceEvaluator(model).run(
        None, {name: tensor.numpy() for name, tensor in held.items() if name in found}
    )
    for result, truth in zip(results, flat(expected), strict=True):
        torch.testing.assert_close(torch.from_numpy(np.array(result)), truth.detach())


@pytest.mark.parametrize("graph", ["random", "shared edges"])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.op in VALUES], ids=str)
def test_translations(variant, graph):
    """Every choice and every optional input of the translated operators."""
    problem = replace(variant, graph=graph).problem()
    tensors = [None if a is None else torch.tensor(a) for a in problem.inputs]
    at = None if problem.graph is None else traceable(problem.graph)
    y = translated(problem.op, at, tensors, dict(problem.options), "forward")
    expected = torch.from_numpy(problem.run("forward")[0])
    torch.testing.assert_close(y, expected, rtol=1e-11, atol=1e-11)


def test_attention():
    assert {name for name, op in OPERATORS.items() if op.signature.attention} == {*ATTENTION}
    for name in ATTENTION:
        problem = representative(name).problem()
        tensors = [torch.tensor(a) for a in problem.inputs]
        alpha = translated(
            problem.op, traceable(problem.graph), tensors, problem.options, "attention"
        )
        expected = problem.op.attention(*problem.arguments("forward"), **problem.options)
        torch.testing.assert_close(alpha, torch.from_numpy(expected))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_by_trace(name):
    example = Example(name, dtype=torch.float32)
    given = tuple(example.tensors)
    if name not in VALUES:
        with pytest.raises(NotImplementedError, match=rf"pyops\.torch\.{name}: {REFUSED}"):
            by_trace(Module(example), given)
    elif name in NOT_IN_TRACES:
        with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match=name):
            by_trace(Module(example), given)
    else:
        assert_runs(by_trace(Module(example), given), given, example(*given))


@pytest.mark.parametrize("name", CASES)
def test_layers_by_trace(name):
    layer, given, others = case(name)
    layer.eval().requires_grad_(False)
    if name in REFUSED_LAYERS:
        with pytest.raises(NotImplementedError, match=f"{REFUSED_LAYERS[name]}: {REFUSED}"):
            by_trace(layer, given)
        return
    exported = by_trace(layer, given)
    for some in given, others:
        assert_runs(exported, some, layer(*some))


def subclass(value):
    """Indices may be subclasses, as in PyTorch Geometric."""
    geometric = pytest.importorskip("torch_geometric")
    if isinstance(value, tuple | list):
        return type(value)(map(subclass, value))
    if value.is_floating_point():
        return value
    return (geometric.Index if value.dim() == 1 else geometric.EdgeIndex)(value)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv", "NNConv", "scatter"])
def test_indices_of_subclasses_are_inputs(name):
    layer, given, others = case(next(known for known in CASES if known.split()[0] == name))
    layer.eval().requires_grad_(False)
    exported = by_trace(layer, subclass(given))
    assert len(exported[0].graph.input) == len(flat(given))
    for some in given, others:
        assert_runs(exported, some, layer(*some))


@pytest.mark.parametrize("name", BY_PROGRAM)
def test_operators_by_program(name):
    pytest.importorskip("onnxscript")
    example = Example(name, dtype=torch.float32)
    given = tuple(example.tensors)
    assert_runs(by_program(Module(example), given), given, example(*given))


@pytest.mark.parametrize("name", LAYERS_BY_PROGRAM)
def test_layers_by_program(name):
    pytest.importorskip("onnxscript")
    layer, given, others = case(name)
    layer.eval().requires_grad_(False)
    exported = by_program(layer, given)
    for some in given, others:
        assert_runs(exported, some, layer(*some))


def causes(error):
    while error is not None:
        yield str(error)
        error = error.__cause__


def test_what_programs_refuse():
    pytest.importorskip("onnxscript")
    example = Example("orthonormalize")
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as refusal:
        by_program(Module(example), tuple(example.tensors))
    assert any(f"pyops.torch.orthonormalize: {REFUSED}" in text for text in causes(refusal.value))
    program = torch.export.export(Module(Example("tanh")), (torch.rand(3, 4, dtype=torch.float64),))
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as refusal:
        torch.onnx.export(program, dynamo=True, verbose=False)
    assert any("pyops.tanh" in text or "pyops.torch.tanh" in text for text in causes(refusal.value))
