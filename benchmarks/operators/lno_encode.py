"""y_m = sum over the points of exp(-mu_m t_j) u_j for many samples u."""

import numpy as np

from benchmarks.problem import normal


def inputs(case, rng):
    u = normal(case, rng, case.samples, case.nodes)
    return {"u": u, "poles": abs(normal(case, rng, case.hidden))}


def constants(case, rng, **graph):
    return {"t": np.linspace(0, 1, case.nodes, dtype=case.dtype)}


def output_shape(case):
    return case.samples, case.hidden


def in_torch(graph, u, poles):
    return u @ (-graph.t[:, None] * poles).exp()


def in_jax(graph, u, poles):
    from jax import numpy as jnp

    return u @ jnp.exp(-graph.t[:, None] * poles)


def in_pyops(case, graph):
    import pyops

    return pyops.lno_encode, (), {}


def multiply_adds(case):
    """Count products of all samples with the exponentials, also weighted by t and by t squared."""
    product = case.samples * case.nodes * case.hidden
    return {"forward": product, "backward": 2 * product, "double_backward": 5 * product}
