"""neuraloperator: its own layers, run as torch eager."""

from importlib.metadata import version

from neuralop.layers import integral_transform  # noqa: F401

from benchmarks.peers.torch import arrays, eager, set_threads, tensors

__all__ = ["arrays", "set_threads"]
COMPILED = False


def versions():
    return {"neuraloperator": version("neuraloperator")}


def load(module, problem):
    return eager(module.in_neuraloperator, *tensors(problem))
