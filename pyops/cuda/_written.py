"""Bookkeeping of outputs that are written in several steps."""

from __future__ import annotations

from typing import Any


class Written:
    """Set of written outputs: the first step overwrites, unless the caller accumulates."""

    def __init__(self, a: Any) -> None:
        self._a = a
        self._names: set[str] = set()

    def __call__(self, name: str) -> bool:
        """Return whether the next step accumulates into this output."""
        first = name not in self._names
        self._names.add(name)
        return bool(self._a.accumulate) or not first

    def clear(self, name: str, array: Any = None) -> None:
        """Set an output to 0 if no step has written it."""
        if not self(name):
            (getattr(self._a, name) if array is None else array)[...] = 0

    def finish(self, *names: str) -> None:
        """Set outputs, in the order of the bits of `wanted`, to 0 if no step has written them."""
        for bit, name in enumerate(names):
            if self._a.wanted >> bit & 1:
                self.clear(name)
