"""Interface to the rest of the package for device arrays, and transfer of graphs to a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._libraries import Library
from ._device import platform
from ._dispatch import check_part
from ._graph import to_device as to_device

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def to_host(caller: str, array: object) -> npt.NDArray[np.generic]:
    """Return a copy of a device array in host memory."""
    return platform(caller).to_host(array)


def library() -> Library:
    """Return the functions by which blocks of device arrays are packed."""
    return Library(check_part, platform("blocks").concatenate)
