"""ONNX node test cases for these operators, through a small adapter."""

import numpy as np
import pytest

import pyops

onnx = pytest.importorskip("onnx", exc_type=ImportError)
from onnx import helper, numpy_helper  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402


def fixed_axes(op):
    """Return a reduction with axes from ONNX's attributes or its second input."""

    def run(x, axes=None, **attributes):
        named = attributes.get("axes")
        axes = named if axes is None else axes.tolist()
        if not axes and attributes.get("noop_with_empty_axes"):
            axes = ()
        elif not axes:
            axes = None
        else:
            axes = tuple(axes)
        return op(x, axis=axes, keepdims=bool(attributes.get("keepdims", 1)))

    return run


def folded(op):
    """Return Max or Min of any number of inputs, by folding."""

    def run(first, *rest):
        for array in rest:
            first = op(first, array)
        return np.array(first)

    return run


ADAPTERS = {
    "Add": pyops.add,
    "Sub": pyops.subtract,
    "Mul": pyops.multiply,
    "Div": pyops.divide,
    "Pow": pyops.power,
    "Max": folded(pyops.maximum),
    "Min": folded(pyops.minimum),
    "Neg": pyops.negative,
    "Abs": pyops.abs,
    "Reciprocal": pyops.reciprocal,
    "Sqrt": pyops.sqrt,
    "Exp": pyops.exp,
    "Log": pyops.log,
    "Relu": pyops.relu,
    "LeakyRelu": lambda x, alpha=0.01: pyops.leaky_relu(x, negative_slope=alpha),
    "Sigmoid": pyops.sigmoid,
    "Tanh": pyops.tanh,
    "Softplus": pyops.softplus,
    "Sin": pyops.sin,
    "Cos": pyops.cos,
    "Tan": pyops.tan,
    "Asin": pyops.arcsin,
    "Atan": pyops.arctan,
    "Sinh": pyops.sinh,
    "Cosh": pyops.cosh,
    "Erf": pyops.erf,
    "ReduceSum": fixed_axes(pyops.sum),
    "ReduceMean": fixed_axes(pyops.mean),
    "ReduceMax": fixed_axes(pyops.max),
    "ReduceMin": fixed_axes(pyops.min),
}
FLOATS = np.float32, np.float64


def arrays(values):
    return [numpy_helper.to_array(v) if hasattr(v, "raw_data") else np.asarray(v) for v in values]


def cases():
    """Yield single-node cases whose arrays are all floats of a supported precision."""
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in ADAPTERS or not case.data_sets:
            continue
        inputs, outputs = map(arrays, case.data_sets[0])
        numbers = inputs[:1] if nodes[0].op_type.startswith("Reduce") else inputs
        if all(a.dtype in FLOATS for a in [*numbers, *outputs]):
            yield pytest.param(nodes[0], inputs, outputs, case.rtol, case.atol, id=case.name)


CASES = list(cases())


@pytest.mark.parametrize(("node", "inputs", "outputs", "rtol", "atol"), CASES)
def test_node(node, inputs, outputs, rtol, atol):
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if any(not a.size for a in inputs[:1]) and node.op_type in ("ReduceMax", "ReduceMin"):
        with pytest.raises(ValueError, match="expected elements along axis"):
            ADAPTERS[node.op_type](*inputs, **attributes)
        return
    got = ADAPTERS[node.op_type](*inputs, **attributes)
    (expected,) = outputs
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


def test_every_operator_has_cases():
    assert {case.values[0].op_type for case in CASES} == set(ADAPTERS)
