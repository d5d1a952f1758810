"""Q of B = Q R with positive diagonal of R; the basis has as many rows as the case has nodes."""

from benchmarks.problem import normal


def shape(case):
    return max(case.nodes, case.hidden), case.hidden


def inputs(case, rng):
    return {"basis": normal(case, rng, *shape(case))}


def output_shape(case):
    return shape(case)


def in_torch(graph, basis):
    import torch

    q, r = torch.linalg.qr(basis)
    return q * torch.sign(torch.diagonal(r))


def in_jax(graph, basis):
    from jax import numpy as jnp

    q, r = jnp.linalg.qr(basis)
    return q * jnp.sign(jnp.diagonal(r))


def in_pyops(case, graph):
    import pyops

    return pyops.orthonormalize, (), {}


def multiply_adds(case):
    """Count two Gram-Schmidt passes in each phase, then products with matrices of all modes."""
    rows, modes = shape(case)
    product = rows * modes**2
    return {"forward": 2 * product, "backward": 4 * product, "double_backward": 11 * product}
