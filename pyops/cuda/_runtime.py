"""Runtime of the device operators: arrays, kernel launches and matrix products."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from ._array import real_type
from ._compiler import cached
from ._products import multiply
from ._source import compose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._array import DeviceArray, DType, Library, Value

Grid: TypeAlias = int | tuple[int, int]
_SHARED = 40 << 10
"""Bytes of dynamic shared memory that need no opt-in; 48 KiB with the kernel's static memory."""
PRECISIONS = "highest", "tf32x3", "tf32"
"""Precisions of float32 matrix products."""


class Runtime(ABC):
    """Arrays of a NumPy-like library, launches of kernels, and matrix products.

    A kernel takes arrays (None for a null pointer), integers as ``long long`` and real numbers as
    ``real``, which is the `real_type` of its features. All calls are asynchronous: they enqueue
    work and never wait.
    """

    xp: Library
    """The array library."""

    def empty(self, shape: int | tuple[int, ...], dtype: DType) -> DeviceArray:
        """Return an uninitialised array."""
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: int | tuple[int, ...], dtype: DType) -> DeviceArray:
        return self.xp.zeros(shape, dtype)

    def launch(
        self,
        source: str,
        kernel: str,
        dtype: DType,
        grid: Grid,
        block: Grid,
        args: Sequence[Value],
        shared: int = 0,
        **constants: int,
    ) -> None:
        """Enqueue a kernel of ``kernels/{source}.cu``, unless the grid has no blocks.

        Parameters
        ----------
        source, kernel : str
            File and name of the kernel.
        dtype : dtype
            The type of the features, which determines that of ``real``.
        grid, block : int or tuple of int
            Number of blocks, and of threads per block, in one dimension or two.
        args : sequence
            Arguments of the kernel.
        shared : int
            Bytes of dynamic shared memory per block.
        **constants : int
            Compile-time constants of the source, among those it lists.
        """
        grid = (grid, 1) if isinstance(grid, int) else grid
        block = (block, 1) if isinstance(block, int) else block
        if all(grid):
            self._run(source, kernel, np.dtype(dtype), grid, block, args, shared, constants)

    def matmul(
        self,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray | None = None,
        precision: str = "highest",
    ) -> DeviceArray:
        """Return the product of two matrices, or of stacks of them.

        ``"tf32"`` rounds factors of float32 to 10 mantissa bits; ``"tf32x3"`` adds the products
        with the remainders.
        """
        if precision != "tf32x3" or a.dtype.char != "f":
            return self._product(a, b, out, precision == "tf32")
        (high, finite, low), (to_high, to_finite, to_low) = map(self._split, (a, b))
        out = self._product(high, to_high, out, True)
        out += self._product(finite, to_low, None, True)
        out += self._product(low, to_finite, None, True)
        return out

    def _split(self, a: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Return elements rounded to 10 mantissa bits, the finite ones of these, and the rest."""
        xp, is_finite = self.xp, self.xp.isfinite(a)
        bits = xp.ascontiguousarray(a).view(np.uint32)
        rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        finite = xp.where(is_finite, rounded, np.float32(0))
        rest = xp.where(is_finite, a, np.float32(0)) - finite
        return xp.where(is_finite, rounded, a), finite, rest

    @abstractmethod
    def _product(
        self, a: DeviceArray, b: DeviceArray, out: DeviceArray | None, rounded: bool
    ) -> DeviceArray:
        """Return a product; float32 factors may be `rounded` to 10 mantissa bits."""

    @abstractmethod
    def _run(
        self,
        source: str,
        kernel: str,
        dtype: np.dtype[np.generic],
        grid: tuple[int, int],
        block: tuple[int, int],
        args: Sequence[Value],
        shared: int,
        constants: dict[str, int],
    ) -> None:
        """Enqueue a kernel."""


class Function(Protocol):
    """Kernel of CuPy."""

    max_dynamic_shared_size_bytes: int

    def __call__(
        self,
        grid: tuple[int, int],
        block: tuple[int, int],
        args: Sequence[object],
        *,
        shared_mem: int,
    ) -> None: ...


class Module(Protocol):
    """Module of CuPy."""

    def get_function(self, name: str) -> Function: ...


class CuPy(Runtime):
    """Runtime on the current device and stream of CuPy."""

    def __init__(self) -> None:
        import cupy

        self.xp = self._cupy = cupy
        self._passed = {int, cupy.ndarray}  # an int is passed in 64 bits
        self._functions: dict[tuple[object, ...], Function] = {}
        self._modules: dict[tuple[object, ...], Module] = {}

    def _run(
        self,
        source: str,
        kernel: str,
        dtype: np.dtype[np.generic],
        grid: tuple[int, int],
        block: tuple[int, int],
        args: Sequence[Value],
        shared: int,
        constants: dict[str, int],
    ) -> None:
        key = self._cupy.cuda.runtime.getDevice(), source, dtype.char, *constants.items()
        function = self._functions.get((key, kernel))
        if function is None:
            if key not in self._modules:
                capability = int(self._cupy.cuda.Device().compute_capability)  # 90 for 9.0
                path = cached(compose(source, dtype.char, constants), capability)
                self._modules[key] = self._cupy.RawModule(path=str(path))
            function = self._functions[key, kernel] = self._modules[key].get_function(kernel)
        if shared > _SHARED and shared > function.max_dynamic_shared_size_bytes:
            function.max_dynamic_shared_size_bytes = shared
        passed = self._passed
        real = real_type(dtype)
        values = [a if type(a) in passed else _argument(a, real) for a in args]
        function(grid, block, values, shared_mem=shared)

    def _product(
        self, a: DeviceArray, b: DeviceArray, out: DeviceArray | None, rounded: bool
    ) -> DeviceArray:
        return multiply(a, b, out, rounded)


_NULL = np.uint64(0)
"""Null pointer; CuPy takes no None."""


def _argument(value: Value, dtype: np.dtype[np.generic]) -> DeviceArray | np.generic | int:
    """Return an argument with the width that the kernel takes."""
    if value is None:
        return _NULL
    if isinstance(value, (bool, int, np.integer)):
        return np.int64(value)
    return dtype.type(value) if isinstance(value, (float, np.floating)) else value


@functools.cache
def cupy_runtime() -> CuPy:
    """Return the runtime of this process."""
    return CuPy()
