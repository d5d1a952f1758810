"""The operators as functions of JAX arrays, with the checks that precede tracing."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._call.framework import FrameworkFunction
from .._call.indices import check_bounds, check_length, check_rows, check_wanted
from .._call.operator import Operator
from .._schema import Indexed
from ..graph import Graph as PlainGraph
from ._call import Call, Constants
from ._devices import alike
from ._graph import (
    SIZES,
    Graph,
    check_index,
    check_known,
    check_leaves,
    ends_of,
    indices_of,
    narrowed,
    on_host,
    sizes_of,
)
from ._primitives import compiled, value

_MOST_CHECKED = 16
_checked: deque[tuple[Any, ...]] = deque(maxlen=_MOST_CHECKED)
"""Row numbers and index arrays already validated, with the option and the sizes of the call."""
DTYPES = np.dtype("float32"), np.dtype("float64")


def function(op: Operator) -> Callable[..., Any]:
    """Return the operator as a function of JAX arrays."""
    front_end, signature = FrameworkFunction(op, "jax"), op.signature
    declared, label = [*signature.inputs], front_end.label

    def call(*inputs: Any, **options: Any) -> Any:
        wants_attention = op.pop_attention(options)
        graph, arrays = front_end.arguments(inputs, options, _graph, check)
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
        options = op.checked(options)
        rows = {}
        for name, option in signature.indexed.items():
            wanted = options[option.option] == option.choice
            check_wanted(f"{label}: {name}", option, given_rows[name], wanted)
            if wanted:
                rows[name] = _rows(f"{label}: {name}", option, given_rows[name], indices, sizes)
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

    front_end.document(call)
    return call


def _run(told: Call, *arrays: Any) -> jax.Array:
    traced = [isinstance(a, jax.core.Tracer) for a in arrays]
    if any(traced):
        if told.leading and not any(traced[: told.leading]):
            told = replace(told, constants=Constants(arrays[: told.leading]))
        (y,) = value.bind(*alike(arrays), call=told)
    else:
        (y,) = compiled(value, told)(*arrays)
    return y


def _graph(label: str, graph: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    if isinstance(graph, Graph):
        return check_leaves(f"{label}: graph", graph.indices, graph.sizes), graph.sizes
    if isinstance(graph, PlainGraph):
        return indices_of(graph, f"{label}: graph"), sizes_of(graph)
    raise TypeError(
        f"{label}: graph: expected pyops.jax.Graph or pyops.Graph, got {type(graph).__name__}"
    )


def check(label: str, array: Any) -> Any:
    """Return the argument if it is an array or a tracer of a supported precision."""
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


def _rows(label: str, option: Indexed, rows: Any, indices: Any, sizes: Any) -> Any:
    """Check the row numbers of an option; while JAX traces only their shape and dtype are known."""
    length = dict(zip(SIZES, sizes, strict=True))[option.length]
    if isinstance(rows, jax.core.Tracer):
        check_index(label, rows)
        if rows.ndim != 1:
            raise ValueError(f"{label}: expected one dimension, got shape {rows.shape}")
        check_length(label, option, rows.shape[0], length)
        return rows
    held = rows, *indices
    if any(like == [option, sizes] and _same(held, others) for *like, others in list(_checked)):
        return rows
    ends = ends_of(indices)
    if ends is not None and ends[2] is not None:
        check_bounds(f"{label.partition(': ')[0]}: graph: edge_ids", ends[2], length, option.length)
    checked = check_rows(label, option, on_host(rows), length, ends)
    if not isinstance(rows, jax.Array):
        return jnp.asarray(narrowed(label, checked))
    if ends is not None and all(isinstance(array, jax.Array) for array in held):
        _checked.append((option, sizes, tuple(map(weakref.ref, held))))
    return rows


def _same(arrays: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Return whether the arrays are identical to the referenced ones, all of them immutable."""
    return len(arrays) == len(others) and all(
        array is other() for array, other in zip(arrays, others, strict=True)
    )
