"""Products of matrices by cuBLAS, each as exact as it is asked for.

`cupy.matmul` takes that from a setting of the whole process, and does not for stacks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

CONSTANTS = {kind: np.array([1, 0], kind) for kind in "fd"}
COMPUTE = {("f", False): 68, ("f", True): 77, ("d", False): 70}
"""cublasComputeType_t: float32, float32 on matrix units by factors of TF32, float64."""
TYPES = {"f": 0, "d": 1}
"""cudaDataType_t."""
_DEFAULT = -1
"""CUBLAS_GEMM_DEFAULT: cuBLAS chooses how."""


def multiply(a: Any, b: Any, out: Any, rounded: bool) -> Any:
    """The product of two matrices, of two stacks of them, or of a stack and one matrix.

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
    (a, turn_a, lead_a), (b, turn_b, lead_b) = _operand(a), _operand(b)
    one, zero = (CONSTANTS[kind][i:].ctypes.data for i in range(2))
    number, compute = TYPES[kind], COMPUTE[kind, rounded and kind == "f"]
    size = a.itemsize
    # cuBLAS counts by columns: to it C order is a transposed matrix, and so is the product.
    first = device.get_cublas_handle(), turn_b, turn_a, columns, rows, inner, one
    if a.ndim == 2:
        cublas.gemmEx(
            *first, b.data.ptr, number, lead_b, a.data.ptr, number, lead_a, zero, out.data.ptr,
            number, columns, compute, _DEFAULT,
        )  # fmt: skip
    else:
        cublas.gemmStridedBatchedEx(
            *first, b.data.ptr, number, lead_b, b.strides[0] // size, a.data.ptr, number, lead_a,
            a.strides[0] // size, zero, out.data.ptr, number, columns, rows * columns, len(a),
            compute, _DEFAULT,
        )  # fmt: skip
    return out


def _operand(a: Any) -> tuple[Any, int, int]:
    """A matrix whose rows or columns lie in one piece, whether these are columns, and how far
    apart they are."""
    size = a.itemsize
    for turned, (step, far), (count, length) in (
        (0, (a.strides[-1], a.strides[-2]), a.shape[-2:]),
        (1, (a.strides[-2], a.strides[-1]), a.shape[:-3:-1]),
    ):
        lead = far // size if count > 1 else length
        if (step == size or length == 1) and far % size == 0 and length <= lead < 1 << 31:
            return a, turned, lead
    a = a.copy()
    return a, 0, a.shape[-1]
