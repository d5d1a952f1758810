"""Low-level calls with CuPy arrays, queued on the stream that they name, as NVIDIA's calls are.

All arrays of a call are on one device or all on the host; device arrays may belong to any library
that supports DLPack. Graphs are made from arrays of either kind, checked on the host, and copied to
a device on the first call with arrays there, as are arrays that calls derive from graphs.

The code of the calls is that for host memory: their arrays are typed as NumPy's, whose functions
CuPy's arrays implement.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ..._call import arrays
from ._names import names_of_call

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ..._call.indices import Indices
    from ..._call.types import Array, Values
    from ...cuda import DeviceGraph
    from ...cuda._device import Platform
    from ...graph import Graph
    from ._csc import BipartiteCsc

Found = TypeVar("Found", bound="Array | Indices")
Derived = TypeVar("Derived")
HINTS = {
    "graph": "BipartiteCsc",
    "aggregation_operation": "AggOp",
    "output_extrema_location": "Indices",
    "mma_operation": "MMAOp",
    **dict.fromkeys(("coo_idx", "src_offsets", "dst_offsets", "dst_edge_index"), "Integers"),
    **dict.fromkeys(
        ("dim_node", "dim_edge", "dim_src", "dim_dst", "cuda_stream", "stream_id"), "int"
    ),
}
"""Types of the arguments that are not arrays of features."""
PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
STREAMS = "cuda_stream", "stream_id"
AnyGraph: TypeAlias = "Graph | DeviceGraph"


class Device(NamedTuple):
    """The device of a call's arrays."""

    platform: Platform
    number: int


_device: ContextVar[Device | None] = ContextVar("_device", default=None)


def current_device() -> Device | None:
    """Return the device of the running call, None on the host."""
    return _device.get()


def on_device(value: object) -> bool:
    """Return whether a value is an array on a device."""
    return arrays.on_device(value) and hasattr(value, "dtype")


def queued(names: Mapping[str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a call to also accept device arrays, see `queue`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        name, doc, module = function.__name__, function.__doc__, function.__module__
        return queue(name, doc, module, signature, lambda values: function(**values), names)

    return decorate


def queue(
    name: str,
    doc: str | None,
    module: str,
    signature: inspect.Signature,
    function: Callable[[Values], None],
    names: Mapping[str, str],
) -> Callable[..., None]:
    """Make a call, whose device arrays are queued on the stream given.

    Always checks what the signature declares: arrays that may not be None, flags, the stream.
    Errors of the operators have their `names` of arguments translated to those of the call.
    """
    hints = {name: p.annotation for name, p in signature.parameters.items()}
    needed = [name for name, hint in hints.items() if hint == "Array"]
    flags = [name for name, hint in hints.items() if hint == "bool"]

    def checked(values: Values) -> None:
        for argument in needed:
            if values[argument] is None:
                check_array(f"{name}: {argument}", None)
        if names:
            with names_of_call(name, names):
                function(values)
        else:
            function(values)

    def call(*arguments: object, **keywords: object) -> None:
        values = bind(name, signature, arguments, keywords)
        for flag in flags:
            check_flag(f"{name}: {flag}", values[flag])
        run(name, values, checked)

    call.__name__ = call.__qualname__ = name
    call.__doc__, call.__module__ = doc, module
    vars(call)["__signature__"] = signature
    return call


def signature_of(
    names: Iterable[str],
    defaults: Mapping[str, object],
    optional: Collection[str] = (),
    keywords: Mapping[str, object] | None = None,
) -> inspect.Signature:
    """Return the signature of a call.

    Arguments are arrays unless HINTS has another type. Those that are `optional` have no default
    but may be None.
    """
    by_name, parameters = keywords or {}, []
    values = dict.fromkeys(names, inspect.Parameter.empty) | {**defaults, **by_name}
    for name, default in values.items():
        hint = HINTS.get(name, "Array")
        hint = f"{hint} | None" if name in optional or default is None else hint
        parameter = inspect.Parameter(name, PLAIN, default=default, annotation=hint)
        kind = inspect.Parameter.KEYWORD_ONLY if name in by_name else PLAIN
        parameters.append(parameter.replace(kind=kind))
    return inspect.Signature(parameters)


def bind(
    caller: str,
    signature: inspect.Signature,
    arguments: tuple[object, ...],
    keywords: Values,
) -> Values:
    """Return the arguments of a call by name, defaults included."""
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{caller}: {error}") from None
    bound.apply_defaults()
    return bound.arguments


def check_flag(label: str, value: object) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{label}: expected True or False, got {value!r}")


def run(caller: str, values: Values, function: Callable[[Values], None]) -> None:
    """Run a call; on the stream among its arguments if there are arrays on a device."""
    stream_name = next(name for name in STREAMS if name in values)
    address = arrays.check_size(f"{caller}: {stream_name}", values[stream_name], 0, 2**63 - 1)
    names = [name for name, value in values.items() if on_device(value)]
    if not names:
        function(values)
        return
    from ...cuda._device import platform

    on = platform(caller)

    def adopt(name: str) -> tuple[object, int]:
        try:
            return on.adopt(values[name])
        except BufferError as error:
            raise TypeError(f"{caller}: {name}: expected an array to share: {error}") from error

    _, number = adopt(names[0])
    with on.on(number), on.stream(address):
        adopted = dict(values)
        for name in names:
            adopted[name], device = adopt(name)
            if device != number:
                raise ValueError(
                    f"{caller}: {name}: expected device {number} like {names[0]}, "
                    f"got device {device}"
                )
        token = _device.set(Device(on, number))
        try:
            function(adopted)
        finally:
            _device.reset(token)


def check_array(label: str, array: object) -> Array:
    """Return the argument if it is an array of supported precision on the device of the call."""
    if current_device() is None:
        _refuse_tensors(label, array)
        return arrays.check_array(label, array)
    found: Array = _check_device_array(label, array)
    if found.dtype.char not in arrays.VARIANTS:
        raise TypeError(f"{label}: expected float32 or float64, got {found.dtype}")
    return found


def check_output(
    label: str, array: object, shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> Array:
    """Return an output array if it has the given shape and dtype."""
    if current_device() is None:
        _refuse_tensors(label, array)
        return arrays.check_output(label, array, shape, dtype)
    found = check_array(label, array)
    if found.dtype != dtype:
        raise TypeError(f"{label}: expected {dtype} like the inputs, got {found.dtype}")
    arrays.check_place(label, found, shape)
    return found


def check_numbers(label: str, array: object, shape: tuple[int, ...]) -> Indices:
    """Return a device array for indices if it is an integer array of this shape."""
    found: Indices = _check_device_array(label, array)
    if found.dtype not in (np.int32, np.int64):
        raise TypeError(f"{label}: expected int32 or int64, got {found.dtype}")
    arrays.check_place(label, found, shape)
    return found


def _refuse_tensors(label: str, array: object) -> None:
    """Refuse tensors in host memory with the modules that take them."""
    if type(array).__module__.partition(".")[0] == "torch":
        raise TypeError(
            f"{label}: expected a NumPy array, got {arrays.kind_of(array)}; "
            "pyops.compat.pylibcugraphops.pytorch.operators and pyops.torch take these"
        )


def _check_device_array(label: str, array: Any) -> Any:
    if not on_device(array):
        raise TypeError(
            f"{label}: expected an array on the device like the other arguments, "
            f"got {arrays.kind_of(array)}"
        )
    return array


def graph_for(holder: BipartiteCsc) -> AnyGraph:
    """Return the graph of a holder made by `make_csc` and the like, on the device of the call."""
    if current_device() is None:
        return holder.graph
    return derived_graph(holder, "itself", lambda: holder.graph)


def derived_graph(holder: BipartiteCsc, name: str, make: Callable[[], AnyGraph]) -> AnyGraph:
    """Return a graph derived from a holder, cached, on the device of the call."""
    return _cached(holder.derived_graphs, name, make, lambda graph, _: graph.to_device())


def derived_array(holder: BipartiteCsc, name: str, make: Callable[[], Found]) -> Found:
    """Return an array derived from a holder, cached, on the device of the call."""
    cache: Values = holder.derived_arrays
    array: Found = _cached(cache, name, make, lambda array, device: device.platform.copy(array))
    return array


def _cached(
    cache: dict[str, Derived],
    name: str,
    make: Callable[[], Derived],
    move: Callable[[Derived, Device], Derived],
) -> Derived:
    device = current_device()
    if name not in cache:
        cache[name] = make()
    if device is None:
        return cache[name]
    key = f"{name} on {device.number}"
    if key not in cache:
        cache[key] = move(cache[name], device)
    return cache[key]
