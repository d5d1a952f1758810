"""jax.jit of the formula, its VJP, and the VJP of that."""

from functools import partial
from types import SimpleNamespace

import jax
import numpy as np

COMPILED = True


def versions():
    return {"jax": jax.__version__}


def set_threads(count):
    """Do nothing: XLA sizes its pool by affinity and XLA_FLAGS, both set before this process."""


def load(module, problem, wait=jax.block_until_ready):
    jax.clear_caches()
    graph = {
        name: jax.numpy.asarray(array, dtype="int32" if array.dtype.kind == "i" else None)
        for name, array in problem.graph.items()
    }
    inputs = [jax.numpy.asarray(array) for array in problem.inputs.values()]
    cotangents = tuple(jax.numpy.asarray(array) for array in problem.cotangents)
    gy = jax.numpy.asarray(problem.gy)

    def formula(graph, *inputs, differentiated=True):
        data = SimpleNamespace(**graph, **problem.numbers, differentiated=differentiated)
        return module.in_jax(data, *inputs)

    def forward(graph, *inputs):
        return (formula(graph, *inputs, differentiated=False),)

    def backward(graph, gy, *inputs):
        y, pull = jax.vjp(partial(formula, graph), *inputs)
        return y, *pull(gy)

    def double_backward(graph, gy, cotangents, *inputs):
        def first(gy, *inputs):
            y, *gradients = backward(graph, gy, *inputs)
            return tuple(gradients), y

        gradients, pull, y = jax.vjp(first, gy, *inputs, has_aux=True)
        dgy, *second = pull(cotangents)
        return y, *gradients, *second, dgy

    def jitted(phase, *arguments):
        compiled = jax.jit(phase)
        return lambda: wait(compiled(*arguments))

    return {
        "forward": jitted(forward, graph, *inputs),
        "backward": jitted(backward, graph, gy, *inputs),
        "double_backward": jitted(double_backward, graph, gy, cotangents, *inputs),
    }


def arrays(module, case, results):
    return [np.asarray(array) for array in results]
