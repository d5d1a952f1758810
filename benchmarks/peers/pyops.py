"""pyops: the phases of an operator, called in sequence."""

from types import SimpleNamespace

import numpy as np

import pyops

COMPILED = False


def versions():
    return {"pyops": pyops.__version__, "numpy": np.__version__}


def set_threads(count):
    pyops.set_num_threads(count)


def prepare(module, problem):
    """Return the operator, its inputs, their cotangents, and the options."""
    nodes, graph = problem.case.nodes, problem.graph
    packed = pyops.Graph(graph["src"], graph["dst"], nodes, nodes)
    operator, leading, options = module.in_pyops(
        problem.case, SimpleNamespace(packed=packed, **graph, **problem.numbers)
    )
    pack = getattr(module, "pack", lambda *arrays: arrays)
    inputs = (*leading, *pack(*problem.inputs.values()))
    return operator, inputs, pack(*problem.cotangents), options


def load(module, problem):
    operator, inputs, cotangents, options = prepare(module, problem)

    def forward():
        y, _ = operator.forward(*inputs, **options)
        return (y,)

    def backward():
        y, saved = operator.forward(*inputs, **options)
        return y, operator.backward(*inputs, problem.gy, saved=saved, **options)

    def double_backward():
        y, saved = operator.forward(*inputs, **options)
        first = operator.backward(*inputs, problem.gy, saved=saved, **options)
        second = operator.double_backward(*inputs, problem.gy, *cotangents, saved=saved, **options)
        return y, first, second

    return {"forward": forward, "backward": backward, "double_backward": double_backward}


def alone(module, problem):
    """Return each phase as a separate function."""
    operator, inputs, cotangents, options = prepare(module, problem)
    gy = problem.gy
    return {
        "forward": lambda: operator(*inputs, **options),
        "backward": lambda: operator.backward(*inputs, gy, **options),
        "double_backward": lambda: operator.double_backward(*inputs, gy, *cotangents, **options),
        "jvp": lambda: operator.jvp(*inputs, *cotangents, **options),
    }


def arrays(module, case, results):
    unpack = getattr(module, "unpack", lambda case, *arrays: arrays)
    y, *orders = results
    answers = [y]
    for order, gradients in enumerate(orders, start=1):
        gradients = [gradient for gradient in gradients if gradient is not None]
        dgy = [gradients.pop()] if order == 2 else []
        answers += [*unpack(case, *gradients), *dgy]
    return answers
