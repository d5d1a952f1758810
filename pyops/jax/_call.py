"""Static description of a call as text that compiled programs store, and its execution."""

from __future__ import annotations

import ast
import functools
import hashlib
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from .. import graph as _graph
from .._call.arrays import VARIANTS
from .._call.half import TYPES
from .._call.operator import OPERATORS, Operator
from .._call.plan import HALF
from . import _handler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jax

    from .._call.indices import Indices
    from .._schema import Procedure

_MOST_GRAPHS = 32
_recent: deque[tuple[tuple[Indices, ...], tuple[int, ...], _graph.Graph]] = deque()
"""Contents of index arrays, sizes, and the graph packed for them, newest first."""
Kinds: TypeAlias = "tuple[tuple[tuple[int, ...], str], ...]"
"""Shapes and dtypes."""
Item = TypeVar("Item")


class Kind(Protocol):
    """Array, or its description."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[np.generic]: ...


class _Source(int):
    """Where the handler finds an argument: the number of a buffer, or one of those below."""


_CONSTANT, _TEAM = _Source(-1), _Source(-2)


class Constants:
    """Index arrays that are constants of a program, identified by their contents in its text."""

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        self.arrays = tuple(arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and self._ids() == other._ids()

    def __hash__(self) -> int:
        return hash(self._ids())

    def _ids(self) -> tuple[int, ...]:
        return tuple(map(id, self.arrays))

    def __repr__(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for array in self.arrays:
            digest.update(np.ascontiguousarray(array).data)
        return repr(digest.hexdigest())


@dataclass(frozen=True)
class Call:
    """A phase of an operator with its static parameters; hashable, and restored from its `repr`."""

    operator: str
    phase: str
    sizes: tuple[int, ...]
    """num_src, num_dst, num_edges; () without a graph."""
    indices: int
    """Number of index arrays, which come first."""
    rows: tuple[str, ...]
    """Options that are row numbers, whose arrays follow."""
    present: tuple[bool, ...]
    """Flags of the phase's array parameters that are present among the remaining arrays."""
    wanted: tuple[str, ...]
    options: tuple[tuple[str, object], ...]
    constants: Constants | str | None = None
    """The index arrays and row numbers, or their digest, if they are constants of the program."""
    half: str = ""
    """Half-precision type of rows and their cotangents; "" if they have that of other arrays."""

    @property
    def kernels(self) -> str:
        """Variant of the kernels that read rows of half precision, "" without them."""
        return TYPES.get(self.half, "")

    @property
    def op(self) -> Operator:
        return OPERATORS[self.operator]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs that are present."""
        count = len(self.op.signature.inputs)
        held = zip(self.op.signature.inputs, self.present[:count], strict=True)
        return tuple(name for name, is_present in held if is_present)

    @property
    def leading(self) -> int:
        """Number of arrays before those that are differentiated."""
        return self.indices + len(self.rows)

    def by_parameter(self, arrays: Sequence[Item]) -> list[Item | None]:
        """Return one array or None for each array parameter of the phase."""
        rest = iter(arrays[self.leading :])
        return [next(rest) if is_present else None for is_present in self.present]


@functools.lru_cache(maxsize=1000)
def _decode(text: bytes) -> tuple[Call, int, Kinds]:
    """Decode a call, its number of inputs, and shapes and dtypes of inputs and outputs."""
    fields, count, kinds = ast.literal_eval(text.decode())
    return Call(*fields), count, kinds


def text_of(call: Call, inputs: Sequence[Kind], outputs: Sequence[Kind]) -> str:
    """Encode everything `run` needs; arrays are described by shape and dtype."""
    fields = tuple(getattr(call, name) for name in Call.__dataclass_fields__)
    kinds = ((tuple(a.shape), _stored(a.dtype).str) for a in (*inputs, *outputs))
    return repr((fields, len(inputs), tuple(kinds)))


def _stored(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the type by which kernels read the elements of an array."""
    return HALF if dtype.name in TYPES else np.dtype(dtype)


def run(
    text: bytes, inputs: Sequence[memoryview], outputs: Sequence[memoryview]
) -> tuple[object, ...] | None:
    """Return the plan by which the handler calls the kernel, or execute the call and return None.

    A plan has the text, the number of the kernel, its arguments and their sources, the message if
    memory is short, the contents of the leading buffers for which it is valid, the graph, and the
    owners of the arrays that the arguments point to.
    """
    call, count, kinds = _decode(text)
    arrays: list[npt.NDArray[Any]] = [
        np.frombuffer(view, dtype).reshape(shape)
        for view, (shape, dtype) in zip((*inputs, *outputs), kinds, strict=True)
    ]
    given, out = arrays[:count], arrays[count:]
    options = dict(call.options)
    options.update(zip(call.rows, given[call.indices :], strict=False))
    kept, graph = _graph_of(arrays[: call.indices], call.sizes) if call.sizes else ((), ())
    parameters = call.by_parameter(given)
    if call.phase == "attention":
        call.op._alpha((*graph, *parameters), options, out[0], call.kernels)
        return None
    phase, wanted = call.op._phases[call.phase], call.wanted or None
    if call.half:
        phase = phase.reading(call.kernels)
    numbers: list[int | None] = [*[None] * (len(phase.outputs) - 1), 0]
    if call.wanted:
        found = {name: number for number, name in enumerate(call.wanted)}
        numbers = [found.get(name[1:]) for name in phase.outputs]
    variant = call.kernels or VARIANTS[out[0].dtype.char]
    kernel = _handler.kernels.get(f"{phase.declaration}_{phase.kernel}_{variant}")
    values = None
    if kernel is not None:
        results = [_Source(count + number) for number in numbers if number is not None]
        sources = [*map(_Source, range(call.leading, count))]
        values = phase.prepared((*graph, *parameters), options, wanted, _TEAM, sources, results)
    if values is None:
        buffers = [None if number is None else out[number] for number in numbers]
        phase.run((*graph, *parameters), options, wanted, buffers)
        return None
    contents = *kept, *map(np.array, arrays[call.indices : call.leading])
    if call.constants:
        contents = ()
    arguments = _arguments(phase.interface, values)
    return text, kernel, *arguments, phase.no_memory, contents, *(graph or [None]), values


def _arguments(interface: Procedure, values: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Return the arguments of a kernel in slots of 8 bytes, and their sources."""
    sources = []
    slots = []
    for argument in interface.arguments[:-1]:
        value = values.get(argument.name) if argument.is_array else values[argument.name]
        sources.append(value if isinstance(value, _Source) else _CONSTANT)
        if isinstance(value, np.ndarray):
            value = value.ctypes.data
        elif value is None or isinstance(value, _Source):
            value = 0
        real = argument.type == "float64" and not argument.is_array
        slots.append(struct.pack("d" if real else "q", value))
    return b"".join(slots), struct.pack(f"{len(sources)}i", *sources)


def _graph_of(
    indices: Sequence[Indices], sizes: tuple[int, ...]
) -> tuple[tuple[Indices, ...], tuple[_graph.Graph]]:
    """Return copies of index arrays and their graph, packed once and cached while it is in use.

    Identified by contents, not by address: freed memory is reused.
    """
    for kept, other_sizes, graph in list(_recent):
        if sizes == other_sizes and _same(indices, kept):
            return kept, (graph,)
    kept = tuple(map(np.array, indices))
    graph = _graph._restore(kept[0], kept[1], kept[2] if len(kept) > 2 else None, *sizes)
    if len(_recent) == _MOST_GRAPHS:
        _handler.forget(_recent.pop()[2])
    _recent.appendleft((kept, sizes, graph))
    return kept, (graph,)


def _same(arrays: Sequence[Indices], others: Sequence[Indices]) -> bool:
    return len(arrays) == len(others) and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(arrays, others, strict=True)
    )
