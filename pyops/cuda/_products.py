"""Matrix products by cuBLAS with the precision given per call.

`cupy.matmul` takes the precision from a process-wide setting, and ignores it for stacks.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ._array import DeviceArray

CONSTANTS = {kind: np.array([1, 0], kind) for kind in "fd"}
COMPUTE = {("f", False): 68, ("f", True): 77, ("d", False): 70}
"""cublasComputeType_t: float32, float32 with TF32 factors on tensor cores, float64."""
TYPES = {"f": 0, "d": 1}
"""cudaDataType_t."""
_DEFAULT = -1
"""CUBLAS_GEMM_DEFAULT: cuBLAS selects the algorithm."""


def multiply(a: DeviceArray, b: DeviceArray, out: DeviceArray | None, rounded: bool) -> DeviceArray:
    """Return the product of two matrices, of two stacks of them, or of a stack and one matrix.

    `rounded`: whether factors of float32 may be rounded to TF32.
    """
    import cupy
    from cupy.cuda import cublas, device

    if a.ndim > b.ndim:
        rows = math.prod(a.shape[:-1])
        into = None if out is None else out.reshape(rows, b.shape[-1])
        product = multiply(a.reshape(rows, a.shape[-1]), b, into, rounded)
        return product.reshape(*a.shape[:-1], b.shape[-1])
    kind, rows, inner, columns = a.dtype.char, a.shape[-2], a.shape[-1], b.shape[-1]
    if out is None:
        out = cupy.empty((*a.shape[:-1], columns), a.dtype)
    assert a.shape[:-2] == b.shape[:-2]
    assert inner == b.shape[-2]
    assert a.dtype == b.dtype == out.dtype
    assert out.flags.c_contiguous
    if inner == 0 or out.size == 0:
        out[...] = 0
        return out
    (a, transpose_a, stride_a), (b, transpose_b, stride_b) = _operand(a), _operand(b)
    one, zero = (CONSTANTS[kind][i:].ctypes.data for i in range(2))
    number, compute = TYPES[kind], COMPUTE[kind, rounded and kind == "f"]
    size = a.itemsize
    # cuBLAS is column-major: it sees a C-ordered matrix as transposed, and the product likewise.
    first = device.get_cublas_handle(), transpose_b, transpose_a, columns, rows, inner, one
    args: tuple[int, ...]
    if a.ndim == 2:
        name, args = "gemmEx", (
            *first, b.data.ptr, number, stride_b, a.data.ptr, number, stride_a, zero, out.data.ptr,
            number, columns, compute, _DEFAULT,
        )  # fmt: skip
    else:
        name, args = "gemmStridedBatchedEx", (
            *first, b.data.ptr, number, stride_b, b.strides[0] // size, a.data.ptr, number,
            stride_a, a.strides[0] // size, zero, out.data.ptr, number, columns, rows * columns,
            len(a), compute, _DEFAULT,
        )  # fmt: skip
    try:
        getattr(cublas, name)(*args)
    except NotImplementedError:  # CuPy calls no cuBLAS while a stream is captured
        _capture(name, args)
    return out


_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_longlong}
_ARGUMENTS = {"gemmEx": "piiiiippiipiippiiii", "gemmStridedBatchedEx": "piiiiippiilpiilppiiliii"}
"""Types of the arguments: addresses, int and long long."""


def _capture(name: str, args: tuple[int, ...]) -> None:
    """Call cuBLAS itself on the current stream, which is captured into a graph."""
    import cupy

    library, stream = _cublas(), ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
    values = [_TYPES[kind](value) for kind, value in zip(_ARGUMENTS[name], args, strict=True)]
    status = library.cublasSetStream_v2(values[0], stream)
    status = status or getattr(library, f"cublas{name[0].upper()}{name[1:]}")(*values)
    if status:
        raise RuntimeError(f"cuBLAS: {name} failed while a stream was captured, status {status}")


@functools.cache
def _cublas() -> ctypes.CDLL:
    """Return the library that CuPy has loaded."""
    import cupy

    return ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")


def _operand(a: DeviceArray) -> tuple[DeviceArray, int, int]:
    """Return a matrix for BLAS, 1 if its columns are contiguous or 0, and its leading dimension.

    Copies a matrix that BLAS cannot read in place.
    """
    size = a.itemsize
    for transposed, (step, far), (count, length) in (
        (0, (a.strides[-1], a.strides[-2]), a.shape[-2:]),
        (1, (a.strides[-2], a.strides[-1]), a.shape[:-3:-1]),
    ):
        stride = far // size if count > 1 else length
        if (step == size or length == 1) and far % size == 0 and length <= stride < 1 << 31:
            return a, transposed, stride
    a = a.copy()
    return a, 0, a.shape[-1]
