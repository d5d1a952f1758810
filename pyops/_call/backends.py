"""Backends: packages that run calls with other arrays than those of NumPy."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from .._libraries import Library
    from ..cuda import DeviceGraph
    from ..graph import Graph
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


class Device(Protocol):
    """Module for arrays that are in the memory of a device."""

    def to_host(self, caller: str, array: object) -> npt.NDArray[np.generic]:
        """Return a copy of a device array in host memory."""

    def to_device(self, host: Graph, device: int | None) -> DeviceGraph:
        """Copy a graph to a device."""

    def library(self) -> Library:
        """Return the functions by which blocks of device arrays are packed."""


BACKENDS: dict[str, Callable[[object], bool]] = {}
"""Test for the arrays of a backend, by its module, which is imported with the first of them."""
DEVICES: dict[str, Callable[[object], bool]] = {}
"""The same of modules for arrays of devices."""


def register(module: str, owns: Callable[[object], bool]) -> None:
    """Add a backend, whose test is made before those of the others."""
    others = dict(BACKENDS)
    BACKENDS.clear()
    BACKENDS.update({module: owns, **others})


def register_device(module: str, owns: Callable[[object], bool]) -> None:
    """Add a module for the arrays of devices that its test finds."""
    DEVICES[module] = owns


def find_device(value: object) -> Device | None:
    """Return the module for an array of a device, None for other values."""
    for module, owns in DEVICES.items():
        if owns(value):
            return load_device(module)
    return None


def load_device(module: str | None = None) -> Device:
    """Import a module for arrays of devices, by default the one that was registered first."""
    found: Device = importlib.import_module(module or next(iter(DEVICES)))
    return found


def find_backend(given: Iterable[object]) -> Backend | None:
    """Return the first backend to which an argument belongs, None if there is none."""
    arguments = [*given]
    for module, owns in BACKENDS.items():
        if any(map(owns, arguments)):
            return _load(module)
    return None


@functools.cache
def _load(module: str) -> Backend:
    found: Backend = importlib.import_module(module)
    return found
