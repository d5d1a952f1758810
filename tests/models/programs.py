"""Programs written by hand, and models of them as operators."""

import json

import numpy as np

import pyops
from pyops.models import Model
from pyops.models._model import _kind
from pyops.models._program import read_program


def step(call, result, inputs=None, graph=None, **options):
    found = {"call": call, "result": result, "inputs": inputs or {}, "options": options}
    return found if graph is None else {**found, "graph": graph}


def real(name, columns=None):
    return {"name": name, "kind": "real", "columns": columns}


def program(inputs, steps, outputs=("y",), parameters=(), **others):
    return {
        "version": 1,
        "name": "Net",
        "hyperparameters": {"cutoff": 5.0},
        "inputs": list(inputs),
        "parameters": list(parameters),
        "steps": list(steps),
        "outputs": list(outputs),
    } | others


def model(inputs, steps, tensors=None, **others):
    """Return the model of a program with tensors, which are parameters unless they are named."""
    tensors = tensors or {}
    others.setdefault("parameters", [n for n, a in tensors.items() if a.dtype.kind == "f"])
    text = json.dumps(program(inputs, steps, **others))
    return Model(read_program(text, {n: _kind(a) for n, a in tensors.items()}), tensors)


class AsOperator:
    """Model as an operator of its real inputs and parameters, for `pyops.testing`."""

    def __init__(self, found, given):
        self.model = found
        self.given = given
        self.reals = [one.name for one in found.inputs if one.kind == "real"]
        self.names = [*self.reals, *found.parameters]

    def arrays(self):
        """Return the arrays by which the model is differentiated."""
        own = dict(zip([one.name for one in self.model.inputs], self.given, strict=True))
        return [{**own, **self.model.parameters}[name] for name in self.names]

    def _arguments(self, arrays):
        held = dict(zip(self.names, arrays, strict=True))
        pairs = zip(self.model.inputs, self.given, strict=True)
        inputs = [held.get(one.name, value) for one, value in pairs]
        return inputs, {name: held[name] for name in self.model.parameters}

    def _split(self, arrays):
        count = len(self.names)
        inputs, parameters = self._arguments(arrays[:count])
        return inputs, parameters, arrays[count:]

    def __call__(self, *arrays):
        inputs, parameters = self._arguments(arrays)
        return np.asarray(self.model(*inputs, parameters=parameters))

    def backward(self, *arrays):
        inputs, parameters, (gy,) = self._split(arrays)
        found = self.model.backward(*inputs, gy, parameters=parameters)
        return [found[name] for name in self.names]

    def _named(self, arrays):
        pairs = zip(self.names, arrays, strict=True)
        return {name: array for name, array in pairs if array is not None}

    def jvp(self, *arrays):
        inputs, parameters, tangents = self._split(arrays)
        found = self.model.jvp(*inputs, tangents=self._named(tangents), parameters=parameters)
        return np.asarray(found)

    def double_backward(self, *arrays):
        inputs, parameters, (gy, *cotangents) = self._split(arrays)
        named = self._named(cotangents)
        found = self.model.double_backward(*inputs, gy, cotangents=named, parameters=parameters)
        return [found[name] for name in (*self.names, "gy")]


def check(found, *given):
    """Check all derivatives of a model against difference quotients."""
    op = AsOperator(found, given)
    return pyops.testing.check_gradients(op, *op.arrays())
