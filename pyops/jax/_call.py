"""Static description of a call as text that compiled programs store, and its execution."""

from __future__ import annotations

import ast
import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import graph as _graph
from .._operator import OPERATORS, Operator

_MOST_GRAPHS = 32
_recent: deque[tuple[tuple[Any, ...], tuple[Any, ...], _graph.Graph]] = deque(maxlen=_MOST_GRAPHS)


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
    options: tuple[tuple[str, Any], ...]

    @property
    def op(self) -> Operator:
        return OPERATORS[self.operator]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs that are present."""
        count = len(self.op.signature.inputs)
        held = zip(self.op.signature.inputs, self.present[:count], strict=True)
        return tuple(name for name, there in held if there)

    @property
    def leading(self) -> int:
        """Number of arrays before those that are differentiated."""
        return self.indices + len(self.rows)

    def places(self, arrays: Sequence[Any]) -> list[Any]:
        """Return one array or None for each array parameter of the phase."""
        rest = iter(arrays[self.leading :])
        return [next(rest) if there else None for there in self.present]


@functools.lru_cache(maxsize=1000)
def _told(text: bytes) -> tuple[Call, int, tuple[Any, ...]]:
    """Decode a call, its number of inputs, and shapes and dtypes of inputs and outputs."""
    fields, count, kinds = ast.literal_eval(text.decode())
    return Call(*fields), count, kinds


def text_of(call: Call, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """Encode everything `run` needs; arrays are described by shape and dtype."""
    fields = tuple(getattr(call, name) for name in Call.__dataclass_fields__)
    kinds = ((tuple(a.shape), np.dtype(a.dtype).str) for a in (*inputs, *outputs))
    return repr((fields, len(inputs), tuple(kinds)))


def run(text: bytes, inputs: Sequence[memoryview], outputs: Sequence[memoryview]) -> None:
    """Execute a call on the memory of its arrays."""
    call, count, kinds = _told(text)
    arrays = [
        np.frombuffer(view, dtype).reshape(shape)
        for view, (shape, dtype) in zip((*inputs, *outputs), kinds, strict=True)
    ]
    given, out = arrays[:count], arrays[count:]
    options = dict(call.options)
    options.update(zip(call.rows, given[call.indices :], strict=False))
    graph = (_graph_of(tuple(given[: call.indices]), call.sizes),) if call.sizes else ()
    given = call.places(given)
    phase: Any = call.op if call.phase == "forward" else getattr(call.op, call.phase)
    if not call.phase.endswith("backward"):
        phase(*graph, *given, out=out[0], **options)
        return
    names = [*call.op.signature.inputs, "gy"][: None if call.phase == "double_backward" else -1]
    held = dict(zip(call.wanted, out, strict=True))
    phase(*graph, *given, wanted=call.wanted, out=[held.get(n) for n in names], **options)


def _graph_of(indices: tuple[Any, ...], sizes: tuple[int, ...]) -> _graph.Graph:
    """Return the graph of index arrays, packed once and cached while it is in use.

    Identified by contents, not by address: freed memory is reused.
    """
    for others, other_sizes, graph in list(_recent):
        alike = sizes == other_sizes and len(indices) == len(others)
        if alike and all(map(np.array_equal, indices, others)):
            return graph
    ids = indices[2] if len(indices) > 2 else None
    kept = tuple(np.array(a) for a in indices)
    graph = _graph._restore(kept[0], kept[1], None if ids is None else kept[2], *sizes)
    _recent.appendleft((kept, sizes, graph))
    return graph
