"""Low-level calls with CuPy arrays: queued on the stream that they name, as NVIDIA's calls are.

Arrays of one call are all on a device or all on the host. Graphs are made of arrays of either kind,
checked on the host, and moved to a device once, when a call first comes with arrays there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from ... import _arrays
from ..._arrays import Array, on_device
from ...graph import Graph

Function = TypeVar("Function", bound=Callable[..., Any])
STREAMS = "cuda_stream", "stream_id"
_queued: ContextVar[bool] = ContextVar("_queued", default=False)


def queued(function: Function) -> Function:
    """A call that takes arrays of a device too, and then honours its stream."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if not any(map(on_device, (*arguments, *keywords.values()))):
            return function(*arguments, **keywords)
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        return run(function.__name__, bound.arguments, lambda: function(*arguments, **keywords))

    return call  # type: ignore[return-value]


def run(caller: str, given: dict[str, Any], function: Callable[[], Any]) -> Any:
    """A call on the stream among its arguments, on the device of its first array."""
    from ...cuda._device import platform

    on = platform(caller)
    stream = next(given[name] for name in STREAMS if name in given)
    _arrays.check_size(f"{caller}: stream", stream, 0, 2**63 - 1)
    _, number = on.adopt(next(filter(on_device, given.values())))
    token = _queued.set(True)
    try:
        with on.on(number), on.stream(stream):
            return function()
    finally:
        _queued.reset(token)


def check_array(label: str, array: Any) -> Array:
    """The argument, if it is an array of a supported precision where the call has its arrays."""
    if not _queued.get():
        return _arrays.check_array(label, array)
    if not on_device(array):
        raise TypeError(
            f"{label}: expected an array on the device like the other arguments, "
            f"got {_arrays.kind_of(array)}"
        )
    if array.dtype.char not in _arrays.VARIANTS:
        raise TypeError(f"{label}: expected float32 or float64, got {array.dtype}")
    found: Array = array
    return found


def check_output(label: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array given to be written to."""
    if not _queued.get():
        return _arrays.check_output(label, array, shape, dtype)
    found = check_array(label, array)
    if found.dtype != dtype:
        raise TypeError(f"{label}: expected {dtype} like the inputs, got {found.dtype}")
    if found.shape != shape:
        raise ValueError(f"{label}: expected shape {shape}, got {found.shape}")
    return found


def graph_for(holder: Any) -> Any:
    """The graph of what `make_csc` and its like make, where the call has its arrays."""
    if not _queued.get():
        return holder.graph
    if holder.on_device is None:
        holder.on_device = holder.graph.to_device()
    return holder.on_device


def moved(graph: Graph) -> Any:
    """A graph of this call alone."""
    return graph.to_device() if _queued.get() else graph


def on_host(indices: Any) -> Any:
    """Indices that can be checked: of those on a device a copy."""
    return indices.get() if on_device(indices) else indices


def refuse_on_device(label: str, argument: Any) -> None:
    """Refuse what only the host can do."""
    if _queued.get() and argument is not None:
        raise NotImplementedError(f"{label}: expected None with arrays on a device")
