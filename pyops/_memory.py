"""The memory of large results: huge pages, which the next result gets when one is gone.

Results are new with every call. Left to the C library, the large ones come from a heap that is
trimmed whenever they are gone together: all pages are new with the next call, those of the kernels'
scratch too, and to get 512 small pages takes ten times as long as to get a huge one.
"""

from __future__ import annotations

import math
import mmap
import weakref
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

PAGE = 2**21
"""Bytes of a huge page."""


class Pages:
    """Memory that begins with a huge page; NumPy takes it for that of an array.

    It has no finalizer: an exception of a signal's handler, as of Ctrl-C, would be lost there.
    """

    lent: ClassVar[list[tuple[weakref.ref[Pages], int, mmap.mmap]]] = []
    """Memory that stays when what it was given to is gone, the latest last, with its pages."""

    most = 32
    """Pages that may stay: 64 MB, as the C library keeps at most."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]):
        size = math.prod(shape) * dtype.itemsize
        count = -(-size // PAGE)
        count, self.memory = self._again(count) or (count, self._new(size, count))
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
            with suppress(IndexError):  # another thread did
                self.lent.pop(0)

    def _again(self, count: int) -> tuple[int, mmap.mmap] | None:
        for entry in self.lent[::-1]:
            owner, pages, memory = entry
            if count <= pages <= count * 9 // 8 and owner() is None:
                with suppress(ValueError):  # another thread was faster
                    self.lent.remove(entry)
                    return pages, memory
        return None

    def _new(self, size: int, count: int) -> mmap.mmap:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, (count + 1) * PAGE, flags)
        start = -_address(memory) % PAGE
        large = (size + PAGE // 2) // PAGE  # the last if it is filled by half
        memory.madvise(mmap.MADV_HUGEPAGE, start, large * PAGE)
        return memory

    def __reduce__(self) -> Any:
        raise TypeError("the memory of an array cannot be copied without it")


def _address(memory: mmap.mmap) -> int:
    return np.frombuffer(memory, np.uint8, 1).ctypes.data


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """numpy.empty, in Pages where the system has such and the array is as large as one."""
    if math.prod(shape) * dtype.itemsize >= PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            return np.asarray(Pages(shape, dtype))
        except (OSError, OverflowError):  # no room, no more mappings, or no huge pages
            pass
    return np.empty(shape, dtype)
