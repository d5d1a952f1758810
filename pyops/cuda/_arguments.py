"""Arguments of the functions in `ops`, and which of their outputs are written.

_stubs.py derives a class for each declaration, in _declared.pyi: sizes, codes of choices, numbers,
row numbers and arrays, by the names of the Fortran arguments. An array that is absent, or a
gradient that is not requested, is None. `gy` is given if a gradient by an input is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ._array import DeviceArray

if TYPE_CHECKING:
    from ._graph import DeviceGraph

Table = Callable[[npt.NDArray[np.generic]], DeviceArray]
"""Copies a small array to the device; copies are cached."""


class Arguments:
    """Arguments of every operator."""

    accumulate: bool
    precision: str
    table: Table

    def __init__(self, values: Mapping[str, object]) -> None:
        vars(self).update(values)

    def array(self, name: str) -> DeviceArray | None:
        """Return an array by its name, None if it is absent."""
        found: DeviceArray | None = getattr(self, name)
        return found


class OnGraph(Arguments):
    """Arguments of every operator on a graph."""

    graph: DeviceGraph
    num_src: int
    num_dst: int
    num_edges: int
    num_entries: int


class Written:
    """Set of written outputs: the first step overwrites, unless the caller accumulates."""

    def __init__(self, a: Arguments) -> None:
        self._a = a
        self._names: set[str] = set()

    def __call__(self, name: str) -> bool:
        """Return whether the next step accumulates into this output."""
        first = name not in self._names
        self._names.add(name)
        return self._a.accumulate or not first

    def clear(self, name: str, array: DeviceArray) -> None:
        """Set an output to 0 if no step has written it."""
        if not self(name):
            array[...] = 0

    def finish(self, *names: str) -> None:
        """Set the requested ones of these outputs to 0 if no step has written them."""
        for name in names:
            array = self._a.array(name)
            if array is not None:
                self.clear(name, array)
