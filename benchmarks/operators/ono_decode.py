"""u = Q x for many samples x; Q is the orthonormalised basis."""

from benchmarks.operators import orthonormalize
from benchmarks.operators.ono_encode import multiply_adds
from benchmarks.operators.orthonormalize import shape
from benchmarks.problem import normal

__all__ = ["multiply_adds"]


def inputs(case, rng):
    points, modes = shape(case)
    basis = normal(case, rng, points, modes)
    return {"x": normal(case, rng, case.samples, modes), "basis": basis}


def output_shape(case):
    return case.samples, shape(case)[0]


def in_torch(graph, x, basis):
    return x @ orthonormalize.in_torch(graph, basis).T


def in_jax(graph, x, basis):
    return x @ orthonormalize.in_jax(graph, basis).T


def in_pyops(case, graph):
    import pyops

    return pyops.ono_decode, (), {}
