"""Calls with arrays of half precision: arithmetic in float32, results rounded once.

Half-precision types are `numpy.float16` and bfloat16, which ml_dtypes adds to NumPy. Rows of
features determine the type of a result; parameters may be float32. Some kernels read rows of
bfloat16 as they are, on devices of float16 too, see `Phase.reading`; for others a call converts
its arrays.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from .. import _kernels
from .._schema import HALVES
from .arrays import check_outputs, check_place, check_target, kind_of, on_device
from .memory import new_array
from .plan import HALF
from .threads import team

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .._schema import Signature
    from .phase import Phase
    from .types import Array

TYPES = {"bfloat16": "bf16", "float16": "fp16"}
"""Names of the types, and those of the kernels that convert them."""
_FORMATS = {"bfloat16": (8, -133), "float16": (11, -24)}
"""Significant bits of the types, and the exponent of their least number."""
ROWS = "num_src", "num_dst", "num_edges", "num_entries", "num_samples", "points"
"""First axes of arrays that are no parameters."""
Type = TypeVar("Type")
_MOST_ROUTES = 1000
"""Calls of which it is remembered how they run."""


def is_half(argument: object) -> bool:
    """Return whether an argument is an array of half precision."""
    kind = getattr(argument, "dtype", None)
    return getattr(kind, "itemsize", 2) == 2 and getattr(kind, "name", None) in TYPES


def nearest(number: float, kind: str) -> float:
    """Return a finite number rounded to a type of half precision, without its largest."""
    bits, least = _FORMATS[kind]
    unit = 2.0 ** max(math.frexp(number)[1] - bits, least)
    return round(number / unit) * unit


def types_of(arrays: Iterable[object]) -> tuple[object, ...]:
    """Return the types of arrays, None for what is no array."""
    return tuple([getattr(array, "dtype", None) for array in arrays])


def _native(kind: Any) -> Any:
    """Return a type of NumPy in native byte order, another type as it is."""
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


def kernels(
    types: Sequence[object], rows: Sequence[bool], kind: object, device: bool = False
) -> str:
    """Return which kernels read arrays or tensors of these types as they are, "" for none.

    These need the same type of all `rows`, and others of it or float32. Those of a `device` read
    every type of half precision. The type is None where there is no array.
    """
    known = TYPES.values() if device else HALVES
    name = str(kind).removeprefix("torch.")
    half = TYPES.get(name, "")
    if half not in known or len(types) != len(rows) or not any(rows):
        return ""
    for found, row in zip(types, rows, strict=True):
        allowed = (name,) if row else (name, "float32")
        if found is not None and str(found).removeprefix("torch.") not in allowed:
            return ""
    return half


def _bits(array: Any) -> Any:
    """Return an array of half precision as 16-bit integers."""
    return None if array is None else array.view(HALF)


def widened(array: Any) -> Any:
    """Return an array in float32 if it has half precision."""
    if not is_half(array):
        return array
    if type(array) is not np.ndarray:
        return array.astype(np.float32)
    source = np.ascontiguousarray(array, _native(array.dtype))
    wide = new_array(array.shape, np.dtype(np.float32))
    convert = getattr(_kernels.pyops_half_precision, f"widen_{TYPES[array.dtype.name]}")
    if source.size:
        convert(source.size, team(), _bits(source).reshape(-1), wide.reshape(-1))
    return wide


def round_bits(array: Array, half: str) -> Array:
    """Return float32 rounded to bf16 or fp16, as 16-bit integers."""
    bits = new_array(array.shape, HALF)
    convert = getattr(_kernels.pyops_half_precision, f"round_{half}")
    if array.size:
        convert(array.size, team(), np.ascontiguousarray(array).reshape(-1), bits.reshape(-1))
    return bits


def rounded(array: Any, kind: Any) -> Any:
    """Return float32 in a type that may be one of half precision, and what has it as it is."""
    if array.dtype == kind:
        return array
    if type(array) is not np.ndarray or getattr(kind, "name", None) not in TYPES:
        with np.errstate(all="ignore"):
            return array.astype(kind, copy=False)
    return round_bits(array, TYPES[kind.name]).view(kind)


def output_types(phase: Phase, types: Sequence[object]) -> tuple[list[object], object]:
    """Return the types of the outputs of a call, and that of its result, given its arrays'."""
    types = [_native(kind) for kind in types[: len(phase.signature.inputs)]]
    halves = {t for t in types if getattr(t, "name", None) in TYPES}
    single = np.dtype(np.float32)
    result = result_type(phase.signature, phase.caller, types, halves, single)
    pairs = zip(phase.signature.inputs, types, strict=False)
    gradients = {tag + name: kind for name, kind in pairs for tag in "gd"}
    known = {**gradients, "kept": single}
    return [known.get(name, result) for name in phase.outputs], result


class _Route(NamedTuple):
    """How a call with arrays of some types runs."""

    phase: Phase
    rows: tuple[bool, ...]
    """Which arrays the kernels read as bits."""
    outputs: tuple[object, ...]
    """Types of the outputs."""
    result: Any
    """Type of the result."""


@functools.lru_cache(_MOST_ROUTES)
def _route(phase: Phase, types: tuple[object, ...], device: bool, converts: bool) -> _Route:
    """Return how a call with arrays of these types runs; if `converts`, on float32 copies."""
    outputs, result = output_types(phase, types)
    rows = phase.reads_halves(len(types), device)
    half = "" if converts else kernels(types, rows, result, device)
    if half:
        return _Route(phase.reading(half), tuple(rows), tuple(outputs), result)
    return _Route(phase, (False,) * len(types), tuple(outputs), result)


def run(
    phase: Phase,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[Any] | None,
    accumulate: bool,
) -> tuple[object, ...]:
    """Run a call in float32, and return its outputs in the types of the inputs."""
    first = int(phase.signature.has_graph)
    arrays = given[first:]
    device = all(a is None or on_device(a) for a in arrays)
    one_place = device or all(a is None or isinstance(a, np.ndarray) for a in arrays)
    adds = phase.rounds and accumulate is not False  # sums are rounded once
    key = phase, types_of(arrays), device, adds or not one_place
    try:
        route = _route(*key)
    except TypeError:  # types that cannot be compared, refused below
        route = _route.__wrapped__(*key)
    phase = route.phase
    wide = [_bits(a) if row else widened(a) for a, row in zip(arrays, route.rows, strict=True)]
    found = phase.run([*map(widened, given[:first]), *wide], dict(options), wanted)
    if phase.half and phase.rounds:
        found = tuple([None if f is None else f.view(route.result) for f in found])
    return rounded_outputs(phase, route.outputs, found, out, accumulate)


def rounded_outputs(
    phase: Phase,
    kinds: Sequence[object],
    found: Sequence[Array | None],
    out: Sequence[Any] | None,
    accumulate: bool,
) -> tuple[object, ...]:
    """Return the outputs of a call in float32 in the types of its outputs, or store them there."""
    if out is not None or accumulate is not False:
        labels = [f"{phase.caller}: {label}" for label in phase.labels.values()]
        expected = dict(zip(labels, kinds, strict=True))
        shapes = [None if f is None else f.shape for f in found]

        def check(label: str, array: object, shape: tuple[int, ...], _: object) -> None:
            if _native(getattr(array, "dtype", None)) != expected[label]:
                got = getattr(array, "dtype", kind_of(array))
                raise TypeError(f"{label}: expected an array of {expected[label]}, got {got}")
            if isinstance(array, np.ndarray) and not on_device(array):
                check_target(label, array, shape)
            else:
                check_place(label, array, shape)

        single = np.dtype(np.float32)
        check_outputs(phase.caller, phase.labels, shapes, single, out, accumulate, check)
    results: list[object] = []
    for value, kind, place in zip(found, kinds, out or [None] * len(found), strict=True):
        if place is None:
            results.append(None if value is None else rounded(value, kind))
            continue
        assert value is not None
        with np.errstate(all="ignore"):
            place[...] = rounded(widened(place) + value if accumulate else value, kind)
        results.append(place)
    return tuple(results)
