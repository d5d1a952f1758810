"""Iteration over broadcast arrays: merged axes, strides, and the tiles shared among threads."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .arrays import VARIANTS, plain
from .plan import HALF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .types import Array, Shaped

Lengths: TypeAlias = tuple[int, ...]
Strides: TypeAlias = tuple[int, ...]

PART = 2**16
"""Target number of elements of a tile."""
COLUMNS = 2**15
"""Least number of elements of a tile along the innermost axis, if that axis is split."""
SUMS = 2**12
"""Elements, about, where they are sums over other axes, which so stay in the nearest cache."""
ENOUGH = 16
"""Number of tiles at which no further inner axis is considered for splitting."""
JOINED = 16
"""Largest number of tiles whose partial sums are combined; least elements per partial sum."""


class Layout(NamedTuple):
    """Iteration space of a kernel, in the form of its arguments."""

    table: npt.NDArray[np.int64]
    """Extents of the axes, then the strides of each array along them; one column per axis."""
    split: int
    piece: int
    parts: int
    """Number of tiles; 0 if there are no elements."""


def spread(shape: Lengths, array_shape: Lengths, strides: Strides) -> Strides:
    """Return the strides of an array broadcast to a shape."""
    own = (0 if n == 1 else s for n, s in zip(array_shape, strides, strict=True))
    return (0,) * (len(shape) - len(array_shape)) + tuple(own)


def packed(shape: Lengths) -> Strides:
    """Return the strides, in elements, of a contiguous array in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def element_strides(array: Array) -> Strides:
    return tuple(stride // array.itemsize for stride in array.strides)


def readable(array: object) -> object:
    """Return the argument, copied if a kernel could not read its elements in place."""
    if isinstance(array, np.floating):  # NumPy returns scalars in place of 0-d arrays
        return np.asarray(array)
    if not isinstance(array, np.ndarray):
        return array
    if type(array) is np.memmap:
        array = array.view(np.ndarray)
    fine = array.flags.aligned and array.dtype.isnative
    if fine or type(array) is not np.ndarray or array.dtype.char not in (*VARIANTS, HALF.char):
        return array
    return plain(array)


def flat(array: Array) -> Array:
    """Return the memory of an array as one dimension, from its lowest address."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.size == 0:
        return np.empty(0, array.dtype)
    upwards = array[tuple(slice(None, None, -1 if s < 0 else 1) for s in array.strides)]
    reach = sum((n - 1) * s for n, s in zip(upwards.shape, upwards.strides, strict=True))
    length = reach // array.itemsize + 1
    return np.lib.stride_tricks.as_strided(upwards, (length,), (array.itemsize,))


def _together(one: Lengths, other: Lengths) -> Lengths:
    """Broadcast two shapes as `numpy.broadcast_shapes`, which takes at most 32 axes."""
    rank = max(len(one), len(other))
    padded = [(1,) * (rank - len(lengths)) + lengths for lengths in (one, other)]
    pairs = list(zip(*padded, strict=True))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise ValueError
    return tuple(n if m == 1 else m for m, n in pairs)


def broadcast(caller: str, inputs: Mapping[str, Shaped]) -> Lengths:
    """Return the broadcast shape of the inputs."""
    shape: Lengths = ()
    first = ""
    for name, array in inputs.items():
        try:
            shape = _together(shape, array.shape)
        except ValueError:
            raise ValueError(
                f"{caller}: {name}: expected a shape that broadcasts with {shape} of {first}, "
                f"got {array.shape}"
            ) from None
        first = first or name
    return shape


@functools.lru_cache(maxsize=1000)
def make_layout(shape: Lengths, arrays: tuple[Strides | None, ...], results: int) -> Layout:
    """Return the layout of an iteration space for arrays with strides; None if absent.

    The last `results` arrays are results, which are summed along axes of stride 0.
    """
    axes = _merge(shape, [strides or (0,) * len(shape) for strides in arrays])
    wanted = [i for i in range(len(arrays) - results, len(arrays)) if arrays[i] is not None]
    if 0 in shape:
        return Layout(np.zeros((1, 1), np.int64), 1, 1, 0)
    split, parts = _cut(axes, wanted)
    extent = axes[split][0]
    piece = -(-extent // parts)
    if split == len(axes) - 1 and parts > 1:
        piece = -(-piece // 64) * 64  # whole vectors and cache lines
    table = np.array(axes, np.int64).T
    return Layout(np.ascontiguousarray(table), split + 1, piece, -(-extent // piece))


def _merge(shape: Lengths, arrays: Sequence[Strides]) -> list[tuple[int, ...]]:
    """Return extent and strides of each axis, with adjacent axes merged where all arrays allow."""
    axes: list[tuple[int, ...]] = []
    for extent, *strides in zip(shape, *arrays, strict=True):
        if extent == 1:
            continue
        if axes and all(a == b * extent for a, b in zip(axes[-1][1:], strides, strict=True)):
            axes[-1] = (axes[-1][0] * extent, *strides)
        else:
            axes.append((extent, *strides))
    return axes or [(1, *(1 for _ in arrays))]


def _cut(axes: Sequence[tuple[int, ...]], wanted: Sequence[int]) -> tuple[int, int]:
    """Return the axis to split, outermost first, and the number of tiles; sums may limit it."""
    total = math.prod(axis[0] for axis in axes)
    best, most = 0, 1
    for number, (extent, *strides) in enumerate(axes):
        parts = min(extent, -(-total // PART))
        if number == len(axes) - 1:
            kept = any(strides[i] and not axis[1 + i] for i in wanted for axis in axes)
            parts = -(-extent // SUMS) if kept else min(parts, max(1, extent // COLUMNS))
        sums = sum(
            math.prod(axis[0] for axis in axes if axis[1 + i]) for i in wanted if not strides[i]
        )
        if sums:
            parts = min(parts, JOINED, max(1, total // (JOINED * sums)))
        if parts > most:
            best, most = number, parts
        if most >= ENOUGH:
            break
    return best, most
