"""Emulated platform: host arrays that claim to be on a device."""

import contextlib

import numpy as np

from .host import Host


class OnDevice(np.ndarray):
    """Array that pyops treats as a device array; the default device number is 0."""

    def __array_finalize__(self, other):
        self.number = getattr(other, "number", 0)

    def __dlpack_device__(self):
        return 2, self.number

    def get(self):
        return np.array(self)


def to_device(array, number=0):
    """Return the array, or a copy, as a device array."""
    moved = np.asarray(array).view(OnDevice)
    moved.number = number
    return moved


class Elsewhere(Host):
    """Host runner that allocates device arrays, in the memory of another library if one is set."""

    make = None

    def empty(self, shape, dtype):
        return self._lent(super().empty(shape, dtype))

    def zeros(self, shape, dtype):
        return self._lent(super().zeros(shape, dtype))

    def _lent(self, array):
        if self.make is None:
            return to_device(array)
        owner = self.make(array.nbytes)
        lent = to_device(memory_of(owner).view(array.dtype).reshape(array.shape))
        lent[...], lent.owner = array, owner
        return lent


def memory_of(storage):
    """Return the bytes of a storage of torch."""
    import torch

    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


class Platform:
    """Stand-in for CuPy."""

    count = 2

    def __init__(self, runtime=None):
        self.runtime = runtime or Elsewhere()
        self.used, self.streams, self.copies = [], [], 0

    def current(self):
        return 0

    def on(self, number):
        self.used.append(number)
        return contextlib.nullcontext()

    def stream(self, address):
        self.streams.append(address)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def memory(self, make):
        self.runtime.make = make
        try:
            yield
        finally:
            self.runtime.make = None

    def owner(self, array):
        return array.owner

    def adopt(self, value):
        return value.view(np.ndarray), value.number

    def address(self, array):
        return array.ctypes.data

    def copy(self, array):
        self.copies += 1
        return to_device(np.array(array))

    def to_host(self, array):
        return np.array(array)

    def concatenate(self, arrays):
        return to_device(np.concatenate(arrays))
