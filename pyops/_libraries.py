"""Array libraries that the pure-Python array code supports: NumPy, PyTorch, JAX and CuPy."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ._call.arrays import check_array, plain
from ._call.backends import find_device
from ._call.eager import eager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._call.types import Values


class Sliceable(Protocol):
    """Vector whose slices are vectors."""

    def __len__(self) -> int: ...
    def __getitem__(self: Vector, places: slice, /) -> Vector: ...


Vector = TypeVar("Vector", bound=Sliceable)


class Library(NamedTuple):
    """Functions in which the libraries differ."""

    check: Callable[[str, object], Any]
    """Returns the argument in native byte order if it is an array of a supported precision."""
    concatenate: Callable[[Sequence[Any]], Any]
    """Concatenates arrays along their first axis."""


NUMPY = Library(eager(lambda label, array: plain(check_array(label, array))), np.concatenate)


def library_of(array: object) -> Library:
    """Return the library of an array; NumPy, which refuses it, for anything else."""
    if hasattr(array, "__torch_function__"):
        import torch

        from .torch._call import check as check_tensor

        return Library(check_tensor, lambda arrays: torch.cat([*arrays]))
    if hasattr(array, "aval"):
        import jax

        from .jax._function import check as check_array_of_jax

        return Library(check_array_of_jax, jax.numpy.concatenate)
    device = find_device(array)
    return NUMPY if device is None else device.library()


def check_parts(caller: str, parts: Mapping[str, object]) -> tuple[Library, Values]:
    """Check that arrays are of one library and one precision, those of the first."""
    first = next(iter(parts))
    library, found = library_of(parts[first]), {}
    for name, part in parts.items():
        found[name] = array = library.check(f"{caller}: {name}", part)
        if array.dtype != (dtype := found[first].dtype):
            raise TypeError(f"{caller}: {name}: expected {dtype} like {first}, got {array.dtype}")
    return library, found


def split(vector: Vector, *places: int) -> list[Vector]:
    """Split a vector at the given positions, as views where the library has them."""
    return [vector[start:stop] for start, stop in itertools.pairwise((0, *places, len(vector)))]
