"""Low-level calls with CuPy arrays, queued on the stream that they name, as NVIDIA's calls are.

All arrays of a call are on one device or all on the host; device arrays may belong to any library
that supports DLPack. Graphs are made from arrays of either kind, checked on the host, and copied to
a device on the first call with arrays there, as are arrays that calls derive from graphs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..._call import arrays
from ..._call.arrays import Array
from ...graph import Graph

if TYPE_CHECKING:
    from ...cuda._device import Platform

Function = TypeVar("Function", bound=Callable[..., Any])
STREAMS = "cuda_stream", "stream_id"


class There(NamedTuple):
    """The device of a call's arrays, if they are on a device."""

    platform: Platform
    device: int


_there: ContextVar[There | None] = ContextVar("_there", default=None)


def there() -> There | None:
    """Return the device of the running call, None on the host."""
    return _there.get()


def on_device(value: Any) -> bool:
    """Return whether a value is an array on a device."""
    return arrays.on_device(value) and hasattr(value, "dtype")


def queued(function: Function) -> Function:
    """Decorate a call to also accept device arrays, for which it uses the stream given.

    Always checks what the signature declares: arrays that may not be None, flags, the stream.
    """
    caller, signature = function.__name__, inspect.signature(function)
    hints = {name: p.annotation for name, p in signature.parameters.items()}
    needed = [name for name, hint in hints.items() if hint == "Array"]
    flags = [name for name, hint in hints.items() if hint == "bool"]

    def checked(given: dict[str, Any]) -> Any:
        for name in needed:
            if given[name] is None:
                check_array(f"{caller}: {name}", None)
        return function(**given)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{caller}: {error}") from None
        bound.apply_defaults()
        given = bound.arguments
        for name in flags:
            check_flag(f"{caller}: {name}", given[name])
        check_stream(caller, given)
        if any(map(on_device, given.values())):
            return run(caller, given, checked)
        return checked(given)

    return call  # type: ignore[return-value]


def check_flag(label: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{label}: expected True or False, got {value!r}")


def check_stream(caller: str, given: Mapping[str, Any]) -> int:
    """Return the stream among the arguments of a call, as an address."""
    name = next(name for name in STREAMS if name in given)
    return arrays.check_size(f"{caller}: {name}", given[name], 0, 2**63 - 1)


def run(caller: str, given: dict[str, Any], function: Callable[[dict[str, Any]], Any]) -> Any:
    """Run a call on the stream among its arguments, on the device of its first array."""
    from ...cuda._device import platform

    on = platform(caller)
    stream = check_stream(caller, given)

    def adopt(name: str) -> tuple[Any, int]:
        try:
            return on.adopt(given[name])
        except BufferError as error:
            raise TypeError(f"{caller}: {name}: expected an array to share: {error}") from error

    first, *others = (name for name, value in given.items() if on_device(value))
    _, number = adopt(first)
    with on.on(number), on.stream(stream):
        arrays = dict(given)
        for name in (first, *others):
            arrays[name], device = adopt(name)
            if device != number:
                raise ValueError(
                    f"{caller}: {name}: expected device {number} like {first}, got device {device}"
                )
        token = _there.set(There(on, number))
        try:
            return function(arrays)
        finally:
            _there.reset(token)


def check_array(label: str, array: Any) -> Array:
    """Return the argument if it is an array of supported precision on the device of the call."""
    if there() is None:
        return arrays.check_array(label, array)
    _refuse_on_host(label, array)
    if array.dtype.char not in arrays.VARIANTS:
        raise TypeError(f"{label}: expected float32 or float64, got {array.dtype}")
    found: Array = array
    return found


def check_output(label: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an output array if it has the given shape and dtype."""
    if there() is None:
        return arrays.check_output(label, array, shape, dtype)
    found = check_array(label, array)
    if found.dtype != dtype:
        raise TypeError(f"{label}: expected {dtype} like the inputs, got {found.dtype}")
    arrays.check_place(label, found, shape)
    return found


def check_numbers(label: str, array: Any, shape: tuple[int, ...]) -> Any:
    """Return a device array for indices if it is an integer array of this shape."""
    _refuse_on_host(label, array)
    if array.dtype not in (np.int32, np.int64):
        raise TypeError(f"{label}: expected int32 or int64, got {array.dtype}")
    arrays.check_place(label, array, shape)
    return array


def _refuse_on_host(label: str, array: Any) -> None:
    if not on_device(array):
        raise TypeError(
            f"{label}: expected an array on the device like the other arguments, "
            f"got {arrays.kind_of(array)}"
        )


def graph_for(holder: Any) -> Any:
    """Return the graph of a holder made by `make_csc` and the like, on the device of the call."""
    return made_of(holder, "itself", lambda: holder.graph)


def made_of(holder: Any, name: Any, make: Callable[[], Any]) -> Any:
    """Return a graph or array derived from a holder, cached, on the device of the call."""
    if name not in holder.made:
        holder.made[name] = make()
    made, where = holder.made[name], there()
    if where is None:
        return made
    if (name, where.device) not in holder.made:
        moved = made.to_device() if isinstance(made, Graph) else where.platform.copy(made)
        holder.made[name, where.device] = moved
    return holder.made[name, where.device]
