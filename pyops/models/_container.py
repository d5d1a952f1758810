"""Files of the safetensors format, read and written with NumPy alone.

Eight bytes are the length of the header, little endian. The header is a JSON object of the type,
shape and place of each tensor, and of texts under ``__metadata__``. Then follow the tensors,
without gaps, in C order.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedIOBase

TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
"""Types of the format that NumPy has, as NumPy writes them."""
_NAMES = {np.dtype(text): name for name, text in TYPES.items()}
_LONGEST = 100_000_000
"""Bytes of the longest header that the format allows."""
_MOST_AXES = 32
METADATA = "__metadata__"
Tensors = dict[str, npt.NDArray[np.generic]]


class _Entry(NamedTuple):
    """Tensor of a header."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    begin: int
    end: int


def read(path: str | os.PathLike[str]) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors and the metadata of a file.

    Raises
    ------
    ValueError
        If the file does not have the format; the message names file and reason. No array is
        allocated for data that the file does not have.
    OSError
        If the file cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            return read_from(file, size)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None


def read_from(file: BufferedIOBase, size: int) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors and the metadata of a file of so many bytes."""
    start = file.read(8)
    if len(start) < 8:
        raise ValueError(f"expected 8 bytes of the header's length, got {len(start)}")
    length = int.from_bytes(start, "little")
    most = min(size - 8, _LONGEST)
    if not 2 <= length <= most:
        raise ValueError(f"header: expected a length from 2 to {most}, got {length}")
    header = parse("header", file.read(length))
    metadata = _metadata(header.pop(METADATA, {}))
    entries = _entries(header, size - 8 - length)
    tensors: Tensors = {}
    for entry in entries:
        file.seek(8 + length + entry.begin)
        tensors[entry.name] = _array(file, entry)
    return tensors, metadata


def _array(file: BufferedIOBase, entry: _Entry) -> npt.NDArray[np.generic]:
    """Read the array of an entry, whose bytes the file has."""
    found = np.empty(math.prod(entry.shape), entry.dtype)
    held = found.view(np.uint8)
    if file.readinto(held.data) != held.nbytes:
        raise ValueError(f"{entry.name}: expected {held.nbytes} bytes of data")
    if found.dtype.kind == "b" and held.max(initial=0) > 1:
        raise ValueError(f"{entry.name}: expected bytes of 0 or 1")
    return found.astype(found.dtype.newbyteorder("="), copy=False).reshape(entry.shape)


def parse(label: str, text: bytes | str) -> dict[str, object]:
    """Return the object of a JSON text, whose names are unique and whose numbers are finite."""
    try:
        decoded = text if isinstance(text, str) else text.decode()
        if not decoded.startswith("{"):
            raise ValueError("expected an object")
        found = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"{label}: expected less depth") from None
    except ValueError as error:  # with those of UTF-8 and JSON
        raise ValueError(f"{label}: {error}") from None
    assert isinstance(found, dict)
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("expected different names")
    return found


def _refuse(text: str) -> float:
    raise ValueError(f"expected a finite number, got {text}")


def _metadata(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise ValueError(f"{METADATA}: expected an object of texts")
    return given


def _entries(header: Mapping[str, object], size: int) -> list[_Entry]:
    """Return the tensors in the order of the header, which fill the data without gaps."""
    entries = [_entry(name, given) for name, given in header.items()]
    place = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != place:
            raise ValueError(
                f"{entry.name}: data_offsets: expected {place}, where the last tensor ends, "
                f"got {entry.begin}"
            )
        place = entry.end
    if place != size:
        raise ValueError(f"expected {place} bytes of data, got {size}")
    return entries


def _entry(name: str, given: object) -> _Entry:
    keys = {"dtype", "shape", "data_offsets"}
    if not isinstance(given, dict) or given.keys() != keys:
        raise ValueError(f"{name}: expected an object of {', '.join(sorted(keys))}")
    if not isinstance(given["dtype"], str) or given["dtype"] not in TYPES:
        raise ValueError(f"{name}: dtype: expected one of {', '.join(TYPES)}, got "
                         f"{given['dtype']!r:.40}")  # fmt: skip
    dtype = np.dtype(TYPES[given["dtype"]])
    shape = _lengths(f"{name}: shape", given["shape"])
    offsets = _lengths(f"{name}: data_offsets", given["data_offsets"])
    if len(shape) > _MOST_AXES:
        raise ValueError(f"{name}: shape: expected at most {_MOST_AXES} axes, got {len(shape)}")
    if len(offsets) != 2:
        raise ValueError(f"{name}: data_offsets: expected two, got {len(offsets)}")
    size = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != size:
        raise ValueError(
            f"{name}: data_offsets: expected {size} bytes, got {offsets[1] - offsets[0]}"
        )
    return _Entry(name, dtype, shape, *offsets)


def _lengths(label: str, given: object) -> tuple[int, ...]:
    numbers = given if isinstance(given, list) else [None]
    found = [n for n in numbers if type(n) is int and 0 <= n < 2**62]
    if len(found) != len(numbers):
        raise ValueError(f"{label}: expected a list of integers from 0")
    return tuple(found)


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, npt.NDArray[np.generic]],
    metadata: Mapping[str, str],
) -> None:
    """Write tensors and metadata; a file of that name is replaced when all is written.

    The largest types come first and the header's length is a multiple of eight, so that all data
    are aligned.
    """
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, object] = {METADATA: dict(metadata)}
    place = 0
    for name in order:
        array = arrays[name]
        kind = _NAMES.get(array.dtype.newbyteorder("<"))
        if kind is None:
            raise TypeError(f"{name}: expected one of {', '.join(TYPES)}, got {array.dtype}")
        end = place + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    unfinished = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(unfinished, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                array = np.ascontiguousarray(arrays[name])
                file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
