"""Operators on graphs that are distributed over devices.

What is exchanged follows from the declarations: an input whose rows are sources gets the rows of
other devices, an input whose rows are destinations or edges is that of the device, and any other
input is the same on all devices. Derivatives of all orders are those that JAX takes of these steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ._exchange import accumulated, check_length, exchanged, masked, with_zeros
from ._graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._call.operator import Operator
    from ._distributed import DistributedGraph


def call_distributed(
    op: Operator,
    label: str,
    function: Callable[..., jax.Array | tuple[jax.Array, jax.Array]],
    graph: DistributedGraph,
    arrays: Sequence[jax.Array | None],
    options: dict[str, object],
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Return the own rows of the results of an operator, given own rows of its inputs."""
    named, signature = graph._numbers(), op.signature
    axes = {i.name: i.shape[0].text for i in signature.inputs.values()}
    held = {name: a for name, a in zip(axes, arrays, strict=True) if a is not None}
    for name, array in held.items():
        if axes[name] in named:
            length = named[axes[name]].shape[0]
            check_length(f"{label}: {name}", array, axes[name], length)
            held[name] = masked(array, named[axes[name]] >= 0)
        elif axes[name] == "num_edges":
            check_length(f"{label}: {name}", array, axes[name], graph.num_edges)
    if signature.indexed:
        return _call_pairs(op, label, function, graph, held, axes, options)
    fetched = {name: array for name, array in held.items() if axes[name] == "num_src"}
    full = exchanged([*fetched.values()], graph._leaves.send, graph._layout.axis)
    held.update(zip(fetched, full, strict=True))
    if reads_degrees(op):
        for name in fetched:
            here, everywhere = graph._leaves.degrees.T.astype(held[name].dtype)
            shares = jnp.sqrt(here / jnp.maximum(everywhere, 1))
            held[name] *= shares.reshape(-1, *[1] * (held[name].ndim - 1))
    for name, array in held.items():
        if axes[name] == "num_dst" or (axes[name] == "num_edges" and graph._layout.shared):
            held[name] = with_zeros(array)
    found = function(graph.local, *(held.get(name) for name in axes), **options)
    if not isinstance(found, tuple):
        return _own(found, named[signature.output[0].text])
    y, alpha = found
    return _own(y, named[signature.output[0].text]), _own(alpha, named["num_entries"])


def reads_degrees(op: Operator) -> bool:
    """Return whether the kernels of an operator read the out-degrees of sources."""
    return "out_offsets" in op.signature.reads.get("forward", "").split()


def _call_pairs(
    op: Operator,
    label: str,
    function: Callable[..., jax.Array | tuple[jax.Array, jax.Array]],
    graph: DistributedGraph,
    held: dict[str, jax.Array],
    axes: Mapping[str, str],
    options: dict[str, object],
) -> jax.Array:
    """Return the rows of own edges of an operator on pairs of edges.

    The device that has the source of an edge has all edges into it: there the row of the edge is
    computed, and sent to the device of the edge.
    """
    layout, leaves = graph._layout, graph._leaves
    if layout.shared:
        raise ValueError(f"{label}: graph: expected a row for each edge, got one with edge ids")
    if leaves.pairs is None:
        raise ValueError(
            f"{label}: graph: expected one made by pyops.jax.distribute with pairs=True, "
            "got one without"
        )
    for name in op.signature.indexed:
        if options.get(name) is not None and options[name] is not leaves.reverse:
            raise ValueError(f"{label}: {name}: expected graph.{name}, got another array")
    src, dst, send = leaves.pairs
    rows = {name: array for name, array in held.items() if axes[name] == "num_edges"}
    held.update(zip(rows, exchanged([*rows.values()], send, layout.axis), strict=True))
    sizes = layout.pair_nodes, layout.pair_nodes, src.shape[0]
    pairs = Graph.tree_unflatten(sizes, (src, dst))
    y: Any = function(pairs, *(held.get(name) for name in axes), **options)
    computed = leaves.src < layout.num_src, jnp.zeros(1, bool), jnp.ones(send.size, bool)
    y = masked(y, jnp.concatenate(computed))
    return masked(accumulated(y, send, layout.num_edges, layout.axis), leaves.entries >= 0)


def _own(y: jax.Array, numbers: jax.Array) -> jax.Array:
    return masked(y[: len(numbers)], numbers >= 0)
