"""Memory of large results: huge pages, reused for the next result when one is freed.

Every call allocates new results. The C library would trim its heap whenever large results are
freed together. The next call would then fault in all pages of results and kernel scratch again,
512 small pages for each huge one.
"""

from __future__ import annotations

import math
import mmap
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np

if TYPE_CHECKING:
    from .types import Array, Stored

PAGE = 2**21
"""Bytes of a huge page."""


class Pages:
    """Huge-page aligned memory that NumPy wraps as an array.

    It has no finalizer: an exception raised by a signal handler, as for Ctrl-C, would be lost
    there.
    """

    lent: ClassVar[list[tuple[weakref.ref[Pages], int, mmap.mmap]]] = []
    """Memory kept for reuse: its last owner, number of pages and mapping; the newest last."""

    most = 32
    """Number of huge pages kept: 64 MB, the upper limit that the C library uses itself."""

    def __init__(self, shape: tuple[int, ...], dtype: Stored):
        size = math.prod(shape) * dtype.itemsize
        count = -(-size // PAGE)
        count, self.memory = self._reused(count) or (count, self._new(size, count))
        first = _address(self.memory)
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (first + -first % PAGE, False),
        }
        if count > self.most:
            return
        self.lent.append((weakref.ref(self), count, self.memory))
        while sum(count for _, count, _ in self.lent[:]) > self.most:
            with suppress(IndexError):  # another thread removed it
                self.lent.pop(0)

    def _reused(self, count: int) -> tuple[int, mmap.mmap] | None:
        for entry in self.lent[::-1]:
            owner, pages, memory = entry
            if count <= pages <= count * 9 // 8 and owner() is None:
                with suppress(ValueError):  # another thread took it
                    self.lent.remove(entry)
                    return pages, memory
        return None

    def _new(self, size: int, count: int) -> mmap.mmap:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, (count + 1) * PAGE, flags)
        start = -_address(memory) % PAGE
        large = (size + PAGE // 2) // PAGE  # the last page counts if at least half is used
        memory.madvise(mmap.MADV_HUGEPAGE, start, large * PAGE)
        return memory

    def __reduce__(self) -> NoReturn:
        raise TypeError("the memory of an array cannot be copied without it")


def _address(memory: mmap.mmap) -> int:
    return np.frombuffer(memory, np.uint8, 1).ctypes.data


def new_array(shape: tuple[int, ...], dtype: Stored) -> Array:
    """Allocate as numpy.empty; results of at least one huge page use `Pages` where available."""
    if math.prod(shape) * dtype.itemsize >= PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            return np.asarray(Pages(shape, dtype))
        except (OSError, OverflowError):  # no memory, no more mappings, or no huge pages
            pass
    return np.empty(shape, dtype)
