"""The operators as functions of JAX arrays, with the checks that precede tracing."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .._call.framework import FrameworkFunction
from .._call.half import TYPES, kernels, result_type
from .._call.indices import check_bounds, check_length, check_rows, check_wanted
from ..graph import Graph as PlainGraph
from ._call import Call, Constants
from ._devices import with_common_axes
from ._distributed import DistributedGraph
from ._distributed_call import call_distributed
from ._graph import (
    SIZES,
    Graph,
    IndexArrays,
    as_int32,
    check_index,
    check_known,
    check_leaves,
    host_indices,
    indices_of,
    on_host,
    sizes_of,
)
from ._points import Devices, call_over_devices
from ._primitives import bind, compiled
from ._rules import value

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._call.operator import Operator
    from .._call.types import Options
    from .._schema import Indexed

_MOST_CHECKED = 16
References: TypeAlias = "tuple[weakref.ref[jax.Array], ...]"
_checked: deque[tuple[Indexed, tuple[int, ...], References]] = deque(maxlen=_MOST_CHECKED)
"""Row numbers and index arrays already validated, with the option and the sizes of the call."""
DTYPES = np.dtype("float32"), np.dtype("float64")


def function(op: Operator) -> Callable[..., jax.Array | tuple[jax.Array, jax.Array]]:
    """Return the operator as a function of JAX arrays."""
    front_end, signature = FrameworkFunction(op, "jax"), op.signature
    declared, label = [*signature.inputs], front_end.label

    def call(*inputs: object, **options: object) -> jax.Array | tuple[jax.Array, jax.Array]:
        wants_attention = op.pop_attention(options)
        devices = None
        if inputs and isinstance(inputs[0], Devices) and not signature.has_graph:
            devices, inputs = inputs[0], inputs[1:]
        graph, arrays = front_end.arguments(inputs, options, _graph, check)
        kinds = [None if a is None else a.dtype for a in arrays]
        halves = {k for k in kinds if k is not None and k.name in TYPES}
        if not halves:
            return run(devices or graph, arrays, options, wants_attention)
        rounded = result_type(signature, label, kinds, halves, DTYPES[0])
        place = devices or graph
        is_local = not isinstance(place, DistributedGraph | Devices)
        rows = op.reads_halves("forward", len(arrays))
        reads = is_local and signature.half and kernels(kinds, rows, rounded)
        half = rounded.name if reads else ""
        given = [
            a.astype(DTYPES[0]) if a is not None and a.dtype in halves and not (half and row) else a
            for a, row in zip(arrays, rows, strict=True)
        ]
        found = run(place, given, options, wants_attention, half)
        if isinstance(found, tuple):
            return found[0].astype(rounded), found[1].astype(rounded)
        return found.astype(rounded)

    def run(
        graph: DistributedGraph | Devices | tuple[IndexArrays, tuple[int, ...]] | None,
        arrays: list[jax.Array | None],
        options: Options,
        wants_attention: bool,
        half: str = "",
    ) -> jax.Array | tuple[jax.Array, jax.Array]:
        given = [a for a in arrays if a is not None]
        for name, array in zip(declared, arrays, strict=True):
            if array is not None and array.dtype != given[0].dtype and not half:
                first = next(n for n, a in zip(declared, arrays, strict=True) if a is not None)
                raise TypeError(
                    f"{label}: {name}: expected {given[0].dtype} like {first}, got {array.dtype}"
                )
        held = dict(zip(declared, arrays, strict=True))
        if signature.one_of and all(held[name] is None for name in signature.one_of):
            raise TypeError(f"{label}: expected {' or '.join(signature.one_of)}, got neither")
        if isinstance(graph, Devices):
            return call_over_devices(op, label, call, graph, arrays, options)
        if isinstance(graph, DistributedGraph):
            options |= {"return_attention": True} if wants_attention else {}
            return call_distributed(op, label, call, graph, arrays, options)
        indices, sizes = graph or ((), ())
        given_rows = {name: options.pop(name, None) for name in signature.indexed}
        options = op.checked(options)
        rows = {}
        for name, option in signature.indexed.items():
            wanted = options[option.option] == option.choice
            check_wanted(f"{label}: {name}", option, given_rows[name], wanted)
            if wanted:
                rows[name] = _rows(f"{label}: {name}", option, given_rows[name], indices, sizes)
        description = Call(
            operator=op.name,
            phase="forward",
            sizes=sizes,
            indices=len(indices),
            rows=tuple(rows),
            present=tuple(a is not None for a in arrays),
            wanted=(),
            options=tuple(sorted(options.items())),
            half=half,
        )
        y = _run(description, *indices, *rows.values(), *given)
        if not wants_attention:
            return y
        constants = map(jax.lax.stop_gradient, given)
        return y, _run(
            replace(description, phase="attention"), *indices, *rows.values(), *constants
        )

    front_end.document(call)
    return call


def _run(call: Call, *arrays: jax.Array) -> jax.Array:
    traced = [isinstance(a, jax.core.Tracer) for a in arrays]
    if any(traced):
        if call.leading and not any(traced[: call.leading]):
            call = replace(call, constants=Constants(arrays[: call.leading]))
        return bind(value, with_common_axes(arrays), call)[0]
    return compiled(value, call)(*arrays)[0]


def _graph(label: str, graph: object) -> DistributedGraph | tuple[IndexArrays, tuple[int, ...]]:
    if isinstance(graph, DistributedGraph):
        graph._check_inside(label)
        return graph
    if isinstance(graph, Graph):
        return check_leaves(f"{label}: graph", graph.indices, graph.sizes), graph.sizes
    if isinstance(graph, PlainGraph):
        return indices_of(graph, f"{label}: graph"), sizes_of(graph)
    raise TypeError(
        f"{label}: graph: expected pyops.jax.Graph or pyops.Graph, got {type(graph).__name__}"
    )


def check(label: str, array: object) -> jax.Array:
    """Return the argument if it is an array or a tracer of a supported precision."""
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(f"{label}: expected a jax.Array, got {type(array).__name__}")
    if array.dtype not in DTYPES and array.dtype.name not in TYPES:
        raise TypeError(f"{label}: expected float32 or float64, got {array.dtype}")
    if isinstance(array, np.ndarray):
        return jnp.asarray(array)
    check_known(label, array)
    devices = () if isinstance(array, jax.core.Tracer) else array.devices()
    if any(device.platform != "cpu" for device in devices):
        raise ValueError(f"{label}: expected an array on the CPU, got one on {array.devices()}")
    return array


def as_numbers(label: str, condition: object, like: object) -> object:
    """Return a condition of booleans or integers as numbers like another array."""
    if not isinstance(condition, (jax.Array, np.ndarray)):
        raise TypeError(f"{label}: expected a jax.Array, got {type(condition).__name__}")
    if condition.dtype in DTYPES or condition.dtype.name in TYPES:
        return jax.lax.stop_gradient(jnp.asarray(condition))
    if condition.dtype.kind not in "biu":
        raise TypeError(f"{label}: expected booleans, integers or numbers, got {condition.dtype}")
    kind = like.dtype if isinstance(like, (jax.Array, np.ndarray)) else DTYPES[0]
    return (jnp.asarray(condition) != 0).astype(kind)


def _rows(
    label: str, option: Indexed, rows: object, indices: IndexArrays, sizes: tuple[int, ...]
) -> jax.Array:
    """Check the row numbers of an option; while JAX traces only their shape and dtype are known."""
    length = dict(zip(SIZES, sizes, strict=True))[option.length]
    if isinstance(rows, jax.core.Tracer):
        check_index(label, rows)
        if rows.ndim != 1:
            raise ValueError(f"{label}: expected one dimension, got shape {rows.shape}")
        check_length(label, option, rows.shape[0], length)
        return rows
    held = (rows, *indices) if isinstance(rows, jax.Array) else ()
    for other_option, other_sizes, others in list(_checked):
        if held and (option, sizes) == (other_option, other_sizes) and _same(held, others):
            return held[0]
    ends = host_indices(indices)
    if ends is not None and ends[2] is not None:
        check_bounds(f"{label.partition(': ')[0]}: graph: edge_ids", ends[2], length, option.length)
    checked = check_rows(label, option, on_host(rows), length, ends)
    if not isinstance(rows, jax.Array):
        return jnp.asarray(as_int32(label, checked))
    if ends is not None:
        _checked.append((option, sizes, tuple(map(weakref.ref, held))))
    return rows


def _same(arrays: tuple[jax.Array, ...], others: References) -> bool:
    """Return whether the arrays are identical to the referenced ones, all of them immutable."""
    return len(arrays) == len(others) and all(
        array is other() for array, other in zip(arrays, others, strict=True)
    )
