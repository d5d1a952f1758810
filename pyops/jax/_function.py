"""The operators as functions of JAX arrays: what is checked before anything is traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._door import Door
from .._indices import check_indices
from .._operator import Operator
from ..graph import Graph as PlainGraph
from ._call import Call
from ._devices import alike
from ._graph import Graph, check_known, check_leaves, indices_of, sizes_of
from ._primitives import compiled, value

DTYPES = np.dtype("float32"), np.dtype("float64")


def function(op: Operator) -> Callable[..., Any]:
    """The operator on JAX arrays."""
    door, signature = Door(op, "jax"), op.signature
    declared, label = [*signature.inputs], door.label

    def call(*inputs: Any, **options: Any) -> Any:
        wants_attention = op.pop_attention(options)
        graph, arrays = door.arguments(inputs, options, _graph, check)
        indices, sizes = graph or ((), ())
        given = [a for a in arrays if a is not None]
        for name, array in zip(declared, arrays, strict=True):
            if array is not None and array.dtype != given[0].dtype:
                first = next(n for n, a in zip(declared, arrays, strict=True) if a is not None)
                raise TypeError(
                    f"{label}: {name}: expected {given[0].dtype} like {first}, got {array.dtype}"
                )
        held = dict(zip(declared, arrays, strict=True))
        if signature.one_of and all(held[name] is None for name in signature.one_of):
            raise TypeError(f"{label}: expected {' or '.join(signature.one_of)}, got neither")
        given_rows = {name: options.pop(name, None) for name in signature.indexed}
        rows = {
            name: _rows(f"{label}: {name}", numbers)
            for name, numbers in given_rows.items()
            if numbers is not None
        }
        options = op.checked(options)
        told = Call(
            operator=op.name,
            phase="forward",
            sizes=sizes,
            indices=len(indices),
            rows=tuple(rows),
            present=tuple(a is not None for a in arrays),
            wanted=(),
            options=tuple(sorted(options.items())),
        )
        y = _run(told, *indices, *rows.values(), *given)
        if not wants_attention:
            return y
        constants = map(jax.lax.stop_gradient, given)
        return y, _run(replace(told, phase="attention"), *indices, *rows.values(), *constants)

    door.dress(call)
    return call


def _run(told: Call, *arrays: Any) -> jax.Array:
    if any(isinstance(a, jax.core.Tracer) for a in arrays):
        (y,) = value.bind(*alike(arrays), call=told)
    else:
        (y,) = compiled(value, told)(*arrays)
    return y


def _graph(label: str, graph: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    if isinstance(graph, Graph):
        return check_leaves(f"{label}: graph", graph.indices, graph.sizes), graph.sizes
    if isinstance(graph, PlainGraph):
        return indices_of(graph), sizes_of(graph)
    raise TypeError(
        f"{label}: graph: expected pyops.jax.Graph or pyops.Graph, got {type(graph).__name__}"
    )


def check(label: str, array: Any) -> Any:
    """The argument, if it is an array, or what stands for one, of a supported precision."""
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(f"{label}: expected a jax.Array, got {type(array).__name__}")
    if array.dtype not in DTYPES:
        raise TypeError(f"{label}: expected float32 or float64, got {array.dtype}")
    if isinstance(array, np.ndarray):
        return jnp.asarray(array)
    check_known(label, array)
    devices = () if isinstance(array, jax.core.Tracer) else array.devices()
    if any(device.platform != "cpu" for device in devices):
        raise ValueError(f"{label}: expected an array on the CPU, got one on {array.devices()}")
    return array


def _rows(label: str, rows: Any) -> Any:
    if isinstance(rows, jax.Array):
        return check_known(label, rows)
    return jnp.asarray(check_indices(label, rows), jnp.int32)
