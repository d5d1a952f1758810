"""One array in every memory layout."""

import tempfile

import numpy as np


def strided(array):
    """Return the array as every second element, along every axis, of a larger array."""
    fill = np.nan if array.dtype.kind == "f" else -1
    larger = np.full([2 * length + 1 for length in array.shape], fill, array.dtype)
    view = larger[tuple(slice(1, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def reversed_(array):
    every = tuple(slice(None, None, -1) for _ in array.shape)
    return np.ascontiguousarray(array[every])[every]


def unaligned(array):
    """Return the array at an unaligned address; NumPy calls empty arrays always aligned."""
    offset = 1 if array.size else 0
    buffer = np.empty(array.nbytes + 1, np.uint8)
    view = np.frombuffer(buffer, array.dtype, array.size, offset).reshape(array.shape)
    view[...] = array
    assert view.flags.aligned != offset
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def byte_swapped(array):
    return array.astype(array.dtype.newbyteorder())


def memory_map(array):
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, array.dtype, "w+", shape=array.shape)
    mapped[...] = array
    return mapped


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "strided": strided,
    "reversed": reversed_,
    "unaligned": unaligned,
    "read-only": read_only,
    "byte-swapped": byte_swapped,
    "memory map": memory_map,
}
