"""References in NumPy, one matrix at a time, to compare the kernels with.

Each module has `forward` and `backward`, sums of products of complex-analytic functions. Second
derivatives follow by complex step.
"""

import importlib

from ..support.complex_step import derivative


def reference(problem, phase):
    """Return the expected result of `problem.run(phase)`."""
    module = importlib.import_module(f"{__name__}.{problem.op.name}")
    graph = () if problem.graph is None else (problem.graph,)
    inputs, tangents = problem.inputs, problem.cotangents
    gy = problem.arrays["gy"]

    def forward(*inputs):
        return (module.forward(*graph, *inputs, **problem.options),)

    def backward(*inputs):
        return module.backward(*graph, *inputs, gy, **problem.options)

    if phase == "forward":
        return forward(*inputs)
    if phase == "backward":
        return backward(*inputs)
    dy = derivative(forward, inputs, tangents)
    # The Hessian is symmetric: the gradient of <h, backward> is the derivative of backward along h.
    return dy if phase == "jvp" else derivative(backward, inputs, tangents) + dy
