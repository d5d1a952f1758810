"""Bookkeeping of outputs that are written in several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._arguments import Arguments
    from ._array import DeviceArray


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
