"""The interface of NVIDIA's pylibcugraphops, on NumPy arrays of any width."""

from enum import Enum

from . import dimenet as dimenet


class MMAOp(Enum):
    """Precision of matrix products on a GPU; taken and ignored."""

    HighPrecision = 0
    LowPrecision = 1
