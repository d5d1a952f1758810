"""gno_kernel, then gno_aggregate: fused in pyops; the peers materialize every edge's matrix."""

from benchmarks.operators import gno_aggregate, gno_kernel
from benchmarks.operators.gno_aggregate import output_shape
from benchmarks.operators.gno_kernel import pack, unpack
from benchmarks.problem import normal

NOTE = "The peers store a matrix for every edge."

__all__ = ["output_shape", "pack", "unpack"]


def inputs(case, rng):
    features = normal(case, rng, case.nodes, case.width)
    return {"features": features, **gno_kernel.inputs(case, rng)}


def in_torch(graph, features, *kernel):
    return gno_aggregate.in_torch(graph, features, gno_kernel.in_torch(graph, *kernel))


def in_jax(graph, features, *kernel):
    return gno_aggregate.in_jax(graph, features, gno_kernel.in_jax(graph, *kernel), computed=True)


def in_pyops(case, graph):
    import pyops

    return pyops.gno_conv, (graph.packed,), {"hidden": case.hidden}


def multiply_adds(case):
    """Count those of the factored algorithm, which recomputes Z and the hidden layer in each phase.

    A bias counts as one more hidden unit. Backward: Z, gZ, gV, ghid, gh, then gx and gU. Double
    backward: Z, gZ, dZ, Zb, the two terms of dgy, dV, ghid, the two terms of hb, dh, then the
    hidden layer's dpre, dx and dU.
    """
    layer = case.edges * case.hidden * case.dims
    entry, node = case.edges * case.width, case.nodes * case.width * case.width
    hidden, bias = case.hidden, 1
    return {
        "forward": layer + entry * (hidden + bias) + node * (hidden + bias),
        "backward": 3 * layer + entry * (3 * hidden + 2 * bias) + 2 * node * (hidden + bias),
        "double_backward": 7 * layer
        + entry * (8 * hidden + 3 * bias)
        + node * (5 * hidden + 4 * bias),
    }
