"""What there is to compute on: CuPy, a driver, devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ._runtime import cupy_runtime


class Stream:
    """A stream of another library, by its address."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


class Platform:
    """CuPy: what launches kernels and allocates arrays, and the devices it sees."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.runtime = cupy, cupy_runtime()
        self.count: int = cupy.cuda.runtime.getDeviceCount()

    def current(self) -> int:
        """The number of the caller's current device."""
        return int(self.cupy.cuda.runtime.getDevice())

    def on(self, number: int) -> Any:
        """A context in which a device is the current one."""
        return self.cupy.cuda.Device(number)

    def stream(self, address: int) -> Any:
        """A context in which a stream of another library is the current one."""
        return self.cupy.cuda.Stream.from_external(Stream(address))

    def memory(self, make: Callable[[int], Any]) -> Any:
        """A context in which new arrays lie in what another library makes, of so many bytes."""
        number, cuda = self.current(), self.cupy.cuda

        def allocate(size: int) -> Any:
            owner = make(size)
            return cuda.MemoryPointer(cuda.UnownedMemory(owner.data_ptr(), size, owner, number), 0)

        return cuda.using_allocator(allocate)

    def owner(self, array: Any) -> Any:
        """What the other library made, whose first byte is that of an array from there."""
        return array.data.mem._owner

    def adopt(self, value: Any) -> tuple[Any, int]:
        """The CuPy array of an array on a device, in the same memory, and the device.

        DLPack orders the work on the stream that wrote it before that on the current one.
        """
        array = value
        if not isinstance(value, self.cupy.ndarray):
            speaks = hasattr(value, "__dlpack__")
            array = self.cupy.from_dlpack(value) if speaks else self.cupy.asarray(value)
        return array, int(array.device.id)

    def address(self, array: Any) -> int:
        """Where the first element is."""
        return int(array.data.ptr)

    def copy(self, array: Any) -> Any:
        """A copy of an array of the host that every stream may read.

        It is in no pool, whose memory the stream of today could use again while others read it.
        """
        with self.cupy.cuda.using_allocator():
            moved = self.cupy.array(array)
        self.cupy.cuda.get_current_stream().synchronize()
        return moved

    def to_host(self, array: Any) -> Any:
        """A copy of an array on a device, in host memory."""
        return self.cupy.asnumpy(self.adopt(array)[0])

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """A new array of these, along their first axis."""
        return self.cupy.concatenate(arrays)


@functools.cache
def found() -> Platform:
    return Platform()


def platform(caller: str) -> Platform:
    """The platform of this process.

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
            f"{caller}: arrays on a CUDA device need CuPy, which `pip install pyops[cuda]` "
            f"brings: {error}"
        ) from error
    except RuntimeError as error:
        raise RuntimeError(
            f"{caller}: expected a CUDA device and its driver, got: {error}"
        ) from error
