"""Precision of matrix products in the dimenet calls."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ._queue import current_device

if TYPE_CHECKING:
    from ..._call.types import Values


class MMAOp(Enum):
    """Precision of matrix products on a GPU.

    Low precision uses tensor cores with TF32 factors (11-bit significands) for float32 arrays. High
    precision is that of the arrays, as are all products in host memory.
    """

    HighPrecision = 0
    LowPrecision = 1


_PRECISIONS = {None: "highest", MMAOp.HighPrecision: "highest", MMAOp.LowPrecision: "tf32"}


def precision_of(caller: str, mma_operation: object) -> Values:
    """Return the operator's option for such an operation, none if arrays are on the host."""
    if mma_operation is not None and not isinstance(mma_operation, MMAOp):
        raise TypeError(f"{caller}: mma_operation: expected MMAOp, got {mma_operation!r}")
    return {} if current_device() is None else {"precision": _PRECISIONS[mma_operation]}
