"""Backends: packages that run calls with other arrays than those of NumPy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from .arrays import on_device
from .half import is_half

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from .phase import Phase


class Backend(Protocol):
    """Module of a backend."""

    def run(
        self,
        phase: Phase,
        given: Sequence[object],
        options: Mapping[str, object],
        wanted: Collection[str] | None,
        out: Sequence[object] | None,
        accumulate: bool,
    ) -> tuple[Any, ...]:
        """Check a call, run its kernels and return its outputs."""


BACKENDS: dict[str, Callable[[object], bool]] = {
    "pyops._call.half": is_half,
    "pyops.cuda._dispatch": on_device,
}
"""Test for the arrays of a backend, by its module, which is imported with the first of them."""


def register(module: str, owns: Callable[[object], bool]) -> None:
    """Add a backend, whose test is made before those of the others."""
    others = dict(BACKENDS)
    BACKENDS.clear()
    BACKENDS.update({module: owns, **others})


def find_backend(given: Iterable[object]) -> Backend | None:
    """Return the first backend to which an argument belongs, None if there is none."""
    arguments = [*given]
    for module, owns in BACKENDS.items():
        if any(map(owns, arguments)):
            found: Backend = importlib.import_module(module)
            return found
    return None
