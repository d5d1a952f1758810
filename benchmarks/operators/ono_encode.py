"""y = Q^T u for many samples u; Q is the orthonormalised basis."""

from benchmarks.operators import orthonormalize
from benchmarks.operators.orthonormalize import shape
from benchmarks.problem import normal


def inputs(case, rng):
    points, modes = shape(case)
    basis = normal(case, rng, points, modes)
    return {"u": normal(case, rng, case.samples, points), "basis": basis}


def output_shape(case):
    return case.samples, case.hidden


def in_torch(graph, u, basis):
    return u @ orthonormalize.in_torch(graph, basis)


def in_jax(graph, u, basis):
    return u @ orthonormalize.in_jax(graph, basis)


def in_pyops(case, graph):
    import pyops

    return pyops.ono_encode, (), {}


def multiply_adds(case):
    """Count products of all samples with Q, its gradient or tangent, plus those of the basis."""
    points, modes = shape(case)
    product, basis = case.samples * points * modes, orthonormalize.multiply_adds(case)
    uses = {"forward": 1, "backward": 2, "double_backward": 5}
    return {phase: basis[phase] + count * product for phase, count in uses.items()}
