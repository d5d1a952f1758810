"""Rows times the matrices of their types, which are random; `edges` is the number of rows."""

import numpy as np

from benchmarks.problem import normal

TYPES = 16


def inputs(case, rng):
    return {
        "x": normal(case, rng, case.edges, case.width),
        "weight": normal(case, rng, TYPES, case.width, case.width),
    }


def output_shape(case):
    return case.edges, case.width


def constants(case, rng, **graph):
    """Return the type of each row; rows by type, their numbers, and the position of each row."""
    types = rng.integers(TYPES, size=case.edges)
    order = np.argsort(types, kind="stable")
    return {
        "types": types,
        "order": order,
        "counts": tuple(np.bincount(types, minlength=TYPES).tolist()),
        "positions": np.argsort(order),
    }


def in_torch(graph, x, weight):
    """Sort the rows and multiply type by type; faster than a product of matrices per row."""
    import torch

    parts = x.index_select(0, graph.order).split(graph.counts)
    products = [rows @ matrix for rows, matrix in zip(parts, weight.unbind(), strict=True)]
    return torch.cat(products).index_select(0, graph.positions)


def in_jax(graph, x, weight):
    import jax

    counts = jax.numpy.asarray(graph.counts, "int32")
    products = jax.lax.ragged_dot(x[graph.order], weight, counts)
    return products[graph.positions]


def in_pyops(case, graph):
    import pyops

    types = graph.types
    return pyops.segment_matmul, (pyops.Graph(np.arange(len(types)), types, len(types), TYPES),), {}


def pack(x, weight):
    return x, weight, None


def multiply_adds(case):
    product = case.edges * case.width**2
    return {"forward": product, "backward": 2 * product, "double_backward": 4 * product}


def elements_moved(case):
    """Count rows read and written; gradients read and written, too; and again with tangents."""
    rows = case.edges * case.width
    return {"forward": 2 * rows, "backward": 4 * rows, "double_backward": 8 * rows}
