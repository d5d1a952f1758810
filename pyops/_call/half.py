"""Calls with arrays of half precision: arithmetic in float32, results rounded once.

Half-precision types are `numpy.float16` and bfloat16, which ml_dtypes adds to NumPy. Rows of
features determine the type of a result; parameters may be float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .arrays import check_outputs, check_place, check_target, kind_of, on_device

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .._schema import Signature
    from .phase import Phase

TYPES = "bfloat16", "float16"
ROWS = "num_src", "num_dst", "num_edges", "num_entries", "num_samples", "points"
"""First axes of arrays that are no parameters."""
Type = TypeVar("Type")


def is_half(argument: object) -> bool:
    """Return whether an argument is an array of half precision."""
    return getattr(getattr(argument, "dtype", None), "name", None) in TYPES


def _native(argument: Any) -> Any:
    """Return the type of an array in native byte order, None for what is no array."""
    kind = getattr(argument, "dtype", None)
    return kind.newbyteorder("=") if isinstance(kind, np.dtype) else kind


def result_type(
    signature: Signature,
    caller: str,
    types: Sequence[Type | None],
    halves: Collection[Type],
    single: Type,
) -> Type:
    """Return the type of a result, given those of the inputs, of which one is half precision.

    That is the half-precision type of features of nodes, edges, samples or points; of elementwise
    operators that of all inputs, else `single`.
    """
    pairs = [
        (i, t) for i, t in zip(signature.inputs.values(), types, strict=False) if t is not None
    ]
    found = list(dict.fromkeys(t for _, t in pairs if t in halves))
    if len(found) > 1:
        names = " or ".join(map(str, found))
        raise TypeError(f"{caller}: expected one type of half precision, got {names}")
    if any(i.shape[0].text == "..." for i, _ in pairs):
        return found[0] if all(t in halves for _, t in pairs) else single
    return found[0] if any(t in halves and i.shape[0].text in ROWS for i, t in pairs) else single


def run(
    phase: Phase,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[Any] | None,
    accumulate: bool,
) -> tuple[Any, ...]:
    """Run a call on float32 copies, and return its outputs in the types of the inputs."""
    first = int(phase.signature.has_graph)
    inputs = given[first : first + len(phase.signature.inputs)]
    types: list[Any] = [_native(a) for a in inputs]
    halves = {t for t in types if getattr(t, "name", None) in TYPES}
    single = np.dtype(np.float32)
    result = result_type(phase.signature, phase.caller, types, halves, single)
    pairs = zip(phase.signature.inputs, types, strict=False)
    gradients = {tag + name: kind for name, kind in pairs for tag in "gd"}
    known = {**gradients, "kept": single}
    kinds = [known.get(name, result) for name in phase.outputs]
    widened = [a.astype(single) if is_half(a) else a for a in given]  # type: ignore[attr-defined]
    found = phase.run(widened, dict(options), wanted)
    if out is not None or accumulate is not False:
        labels = [f"{phase.caller}: {label}" for label in phase.labels.values()]
        expected = dict(zip(labels, kinds, strict=True))
        shapes = [None if f is None else f.shape for f in found]

        def check(label: str, array: Any, shape: tuple[int, ...], _: object) -> None:
            if _native(array) != expected[label]:
                got = getattr(array, "dtype", kind_of(array))
                raise TypeError(f"{label}: expected an array of {expected[label]}, got {got}")
            if isinstance(array, np.ndarray) and not on_device(array):
                check_target(label, array, shape)
            else:
                check_place(label, array, shape)

        check_outputs(phase.caller, phase.labels, shapes, single, out, accumulate, check)
    rounded: list[Any] = []
    with np.errstate(all="ignore"):
        for value, kind, place in zip(found, kinds, out or [None] * len(found), strict=True):
            if place is None:
                rounded.append(None if value is None else value.astype(kind, copy=False))
                continue
            assert value is not None
            place[...] = (place.astype(single) + value if accumulate else value).astype(kind)
            rounded.append(place)
    return tuple(rounded)
