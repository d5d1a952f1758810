"""The CUDA platform: CuPy, a driver, devices."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from ._runtime import cupy_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from ._array import DeviceArray


class Stream:
    """A stream of another library, given by its address."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


class Storage(Protocol):
    """Memory of the allocator of another library."""

    def data_ptr(self) -> int: ...


class Platform:
    """CuPy, which launches kernels and allocates arrays, and the devices it sees."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.runtime = cupy, cupy_runtime()
        self.count: int = cupy.cuda.runtime.getDeviceCount()

    def current(self) -> int:
        """Return the number of the caller's current device."""
        return int(self.cupy.cuda.runtime.getDevice())

    def on(self, number: int) -> AbstractContextManager[object]:
        """Return a context in which a device is current."""
        device: AbstractContextManager[object] = self.cupy.cuda.Device(number)
        return device

    def stream(self, address: int) -> AbstractContextManager[object]:
        """Return a context in which a stream of another library is current."""
        external = self.cupy.cuda.Stream.from_external
        stream: AbstractContextManager[object] = external(Stream(address))
        return stream

    def memory(self, make: Callable[[int], Storage]) -> AbstractContextManager[object]:
        """Return a context in which CuPy allocates by `make`, an allocator of another library."""
        number, cuda = self.current(), self.cupy.cuda

        def allocate(size: int) -> object:
            owner = make(size)
            return cuda.MemoryPointer(cuda.UnownedMemory(owner.data_ptr(), size, owner, number), 0)

        allocator: AbstractContextManager[object] = cuda.using_allocator(allocate)
        return allocator

    def owner(self, array: DeviceArray) -> object:
        """Return the object of the other allocator that owns the memory of an array."""
        return array.data.mem._owner

    def adopt(self, value: object) -> tuple[DeviceArray, int]:
        """Return a CuPy view of an array on a device, and the device.

        DLPack orders the work of the producer's stream before that of the current one.
        """
        if isinstance(value, self.cupy.ndarray):
            array = value
        elif hasattr(value, "__dlpack__"):
            array = self.cupy.from_dlpack(value)
        else:
            array = self.cupy.asarray(value)
        return array, int(array.device.id)

    def address(self, array: DeviceArray) -> int:
        """Return the address of the first element."""
        return array.data.ptr

    def copy(self, array: npt.NDArray[np.generic]) -> DeviceArray:
        """Copy an array of the host to memory that every stream may read.

        The memory belongs to no pool: a pool could reuse it on this stream while others read it.
        """
        with self.cupy.cuda.using_allocator():
            moved: DeviceArray = self.cupy.array(array)
        self.cupy.cuda.get_current_stream().synchronize()
        return moved

    def to_host(self, array: object) -> npt.NDArray[np.generic]:
        """Return a copy of a device array in host memory."""
        copied: npt.NDArray[np.generic] = self.cupy.asnumpy(self.adopt(array)[0])
        return copied

    def concatenate(self, arrays: Sequence[DeviceArray]) -> DeviceArray:
        """Concatenate arrays along their first axis."""
        joined: DeviceArray = self.cupy.concatenate(arrays)
        return joined


@functools.cache
def found() -> Platform:
    return Platform()


def platform(caller: str) -> Platform:
    """Return the platform of this process.

    Raises
    ------
    ImportError
        If CuPy is not installed.
    RuntimeError
        If there is no driver, or no device.
    """
    try:
        return found()
    except ImportError as error:
        raise ImportError(
            f"{caller}: arrays on a CUDA device need CuPy, which `pip install "
            f'"pyops-kernels[cuda]"` brings: {error}'
        ) from error
    except RuntimeError as error:
        raise RuntimeError(
            f"{caller}: expected a CUDA device and its driver, got: {error}"
        ) from error
