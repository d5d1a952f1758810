"""u_j = sum over the modes of exp(-mu_m t_j) x_m for many samples x."""

from benchmarks.operators.lno_encode import constants, multiply_adds
from benchmarks.problem import normal

__all__ = ["constants", "multiply_adds"]


def inputs(case, rng):
    x = normal(case, rng, case.samples, case.hidden)
    return {"x": x, "poles": abs(normal(case, rng, case.hidden))}


def output_shape(case):
    return case.samples, case.nodes


def in_torch(graph, x, poles):
    return x @ (-poles[:, None] * graph.t).exp()


def in_jax(graph, x, poles):
    from jax import numpy as jnp

    return x @ jnp.exp(-poles[:, None] * graph.t)


def in_pyops(case, graph):
    import pyops

    return pyops.lno_decode, (), {"points": case.nodes}
