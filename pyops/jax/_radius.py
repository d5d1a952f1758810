"""Neighbours within a cutoff, of JAX arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..neighbours import near_images
from ._graph import Graph, as_int32

if TYPE_CHECKING:
    from .._call.indices import Indices


def radius_graph(
    positions: jax.Array,
    cutoff: float,
    *,
    cell: jax.Array | None = None,
    pbc: jax.Array | None = None,
    batch: jax.Array | None = None,
) -> tuple[Graph, jax.Array, jax.Array, jax.Array]:
    """Build the graph of all points closer to each other than a cutoff, periodic images included.

    As `pyops.radius_graph`, of JAX arrays. The edges are a constant; `vectors` and `offsets` have
    derivatives by `positions` and `cell`. The number of edges depends on the positions, so it is
    called outside of `jax.jit`, whose functions take the graph as an argument.

    Parameters
    ----------
    positions : jax.Array, shape (num_nodes, dim)
        In one to three dimensions.
    cutoff : float
    cell : jax.Array, shape (dim, dim) or (num_graphs, dim, dim), optional
    pbc : jax.Array of bool, shape (dim,) or (num_graphs, dim), optional
    batch : jax.Array of integers, shape (num_nodes,), optional

    Returns
    -------
    graph : Graph
        With one node for each point.
    vectors, offsets : jax.Array, shape (num_edges, dim)
        ``positions[src] - positions[dst] + offsets``, and the offset of the source's image.
    reverse : jax.Array of int32, shape (num_edges,)
        Row of the reverse of each edge.

    Raises
    ------
    TypeError
        Where JAX traces, as under `jax.jit` and `jax.vmap`; and as `pyops.radius_graph`.
    ValueError
        As `pyops.radius_graph`.
    """
    graph, vectors, offsets, rows = _graph(
        "radius_graph", positions, cutoff, None, cell, pbc, batch
    )
    return graph, vectors, offsets, jnp.asarray(as_int32("radius_graph: reverse", rows))


def knn_graph(
    positions: jax.Array,
    nearest: int,
    *,
    cell: jax.Array | None = None,
    pbc: jax.Array | None = None,
    batch: jax.Array | None = None,
) -> tuple[Graph, jax.Array, jax.Array]:
    """Build the graph of edges from the nearest other points to each point, images included.

    As `pyops.knn_graph`, of JAX arrays, with the derivatives of `radius_graph`.

    Parameters
    ----------
    positions : jax.Array, shape (num_nodes, dim)
    nearest : int
        Number of edges into each point.
    cell, pbc, batch
        As for `radius_graph`.

    Returns
    -------
    graph : Graph
        With one node for each point.
    vectors, offsets : jax.Array, shape (num_edges, dim)
        As by `radius_graph`.

    Raises
    ------
    TypeError, ValueError
        As for `radius_graph`.
    """
    return _graph("knn_graph", positions, None, nearest, cell, pbc, batch)[:3]


def _graph(
    name: str,
    positions: jax.Array,
    cutoff: float | None,
    nearest: int | None,
    cell: jax.Array | None,
    pbc: jax.Array | None,
    batch: jax.Array | None,
) -> tuple[Graph, jax.Array, jax.Array, Indices]:
    """Return a graph, its vectors, offsets and reverses."""
    given = {"positions": positions, "cell": cell, "pbc": pbc, "batch": batch}
    x, *more = (_values(f"{name}: {key}", value) for key, value in given.items())
    edges, images, reverse = near_images(
        x, cutoff, nearest, cell=more[0], pbc=more[1], batch=more[2]
    )
    positions, (src, dst) = jnp.asarray(positions), edges
    graph = Graph(src, dst, len(positions))
    vectors, offsets = positions[src] - positions[dst], jnp.asarray(images, positions.dtype)
    if cell is not None:
        cells = jnp.asarray(cell)
        if cells.ndim == 3:
            cells = cells[0 if batch is None else jnp.asarray(batch)[src]]
        offsets = (offsets[:, :, None] * cells).sum(1).astype(positions.dtype)
        vectors = vectors + offsets
    return graph, vectors, offsets, reverse


def _values(label: str, given: object) -> Any:
    """Return an argument as an array of NumPy."""
    if given is None and not label.endswith("positions"):
        return None
    if not isinstance(given, (jax.Array, np.ndarray)):
        raise TypeError(f"{label}: expected a jax.Array, got {type(given).__name__}")
    try:
        return np.asarray(jax.lax.stop_gradient(given))
    except jax.errors.TracerArrayConversionError:
        raise TypeError(
            f"{label}: expected an array with values, got one that JAX traces: search outside of "
            "jax.jit and jax.vmap, and pass the graph to the function"
        ) from None
