"""Types of the arguments and results of calls."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.floating]
Dtype: TypeAlias = np.dtype[np.floating]
Stored: TypeAlias = Dtype | np.dtype[np.int16]
"""Type of an array that a kernel takes; integers are the bits of half precision."""
Options: TypeAlias = dict[str, object]
"""Options, and inputs by name, as they are given."""
Values: TypeAlias = dict[str, Any]
"""Arguments of a kernel by name: sizes, codes, bits and arrays."""


class Shaped(Protocol):
    """Array, or something in place of one that has a shape."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...


class Typed(Shaped, Protocol):
    """Array of any library."""

    @property
    def dtype(self) -> object: ...
