"""No kernel reads or writes out of bounds: each array borders on a protected page."""

import ctypes
import mmap

import numpy as np
import pytest

from ..support.cases import PHASES, VARIANTS

PAGE = mmap.PAGESIZE
WIDTHS = [
    {},
    {"hidden": 33, "in_features": 17, "out_features": 9, "columns": 9, "heads": 3, "width": 13},
    {"heads": 8, "width": 7},
    {"heads": 1, "width": 11},
    {"heads": 1, "width": 31},
]
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def fenced(array, end):
    """Return a copy of the array that ends before, or starts after, a page without permissions."""
    pages = -(-array.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    assert libc.mprotect(start + (pages * PAGE if end else 0), PAGE, 0) == 0
    offset = pages * PAGE - array.nbytes if end else PAGE
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("end", [True, False], ids=["end", "start"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_fences(case, dtype, end):
    for widths in WIDTHS:
        problem = case.problem(**widths).map(lambda a: fenced(a.astype(dtype), end))
        for phase in PHASES:
            expected = problem.run(phase)
            out = [None if a is None else fenced(np.zeros_like(a), end) for a in expected]
            if phase == "jvp" or phase == "forward":
                (out,) = out
            for got, same in zip(problem.run(phase, out=out), expected, strict=True):
                assert same is None or np.array_equal(got, same)
