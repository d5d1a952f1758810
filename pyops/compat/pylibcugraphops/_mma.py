"""Precision of the products of matrices, as the calls of dimenet name it."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ._queue import there


class MMAOp(Enum):
    """Precision of matrix products on a GPU.

    Low precision takes the tensor cores with factors of 11 bits where arrays are float32; high
    precision is that of the arrays, as are all products in host memory.
    """

    HighPrecision = 0
    LowPrecision = 1


_PRECISIONS = {None: "highest", MMAOp.HighPrecision: "highest", MMAOp.LowPrecision: "tf32"}


def precision_of(caller: str, mma_operation: object) -> dict[str, Any]:
    """The option of an operator for such an operation, none where arrays are on the host."""
    if mma_operation is not None and not isinstance(mma_operation, MMAOp):
        raise TypeError(f"{caller}: mma_operation: expected MMAOp, got {mma_operation!r}")
    return {} if there() is None else {"precision": _PRECISIONS[mma_operation]}
