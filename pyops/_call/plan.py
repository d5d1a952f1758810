"""Plans: everything about a call that follows from shapes and options, computed once.

The checks of a call and its plan come from the same slots, so they are one module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from .._schema import (
    ANY,
    INDEX_ARRAYS,
    Option,
    Procedure,
    Shape,
    Signature,
    show_shape,
    solving_order,
)
from .arrays import VARIANTS, check_array, check_number, check_size

if TYPE_CHECKING:
    from ..graph import Graph
    from .types import Array, Dtype, Options, Shaped, Stored

Kernel = Callable[..., int]
HALF = np.dtype(np.int16)
"""Type of arrays that hold the bits of numbers of half precision."""


@dataclass(frozen=True)
class Slot:
    """Array parameter of a call: `name` in the kernel, `label` in messages."""

    name: str
    label: str
    forms: tuple[Shape, ...]
    role: str
    needed: bool = False
    half: bool = False
    """Whether it has half precision, as 16-bit integers."""

    @property
    def shape(self) -> Shape:
        """The selected form; the first if none has been selected."""
        return self.forms[0]


@dataclass(frozen=True)
class Plan:
    """Plan to call one compiled variant with arrays of certain shapes."""

    kernel: Kernel
    dtype: Stored
    constants: tuple[object, ...]
    """Sizes, choices, bit masks, and placeholders for arrays not given or not requested."""
    indices: tuple[str, ...]
    """Index arrays to take from the graph."""
    zeros: tuple[tuple[int, ...], ...]
    """Shapes of zero cotangents gy, to allocate where none are given and the kernel reads them."""
    outputs: tuple[tuple[int, ...] | None, ...]
    """Shapes of the requested outputs."""
    order: Callable[[Sequence[object]], tuple[object, ...]]
    """Orders constants, threads, accumulate, indices, row numbers, inputs, zeros and outputs as
    the kernel's arguments."""
    names: tuple[str, ...]
    """Names of these values, in the order before `order`."""
    fill: float | None = None
    """Value of the outputs if there are no elements to compute them from."""
    flat: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Positions of the inputs given, and of the outputs allocated, that the kernel takes as 1-d."""
    indexed: Mapping[str, int | None] = field(default_factory=dict)
    """Length of each option that is row numbers, None if not used."""
    read: tuple[str, ...] = ()
    """Index arrays, with "" for those that the kernel does not read."""
    zero_dtype: Stored | None = None
    """Type of the zero cotangents."""

    @functools.cached_property
    def values(self) -> dict[str, object]:
        """The constants by name, without placeholders."""
        return {
            name: value
            for name, value in zip(self.names, self.constants, strict=False)
            if not (isinstance(value, np.ndarray) and value.size == 0)
        }

    @functools.cached_property
    def array_names(self) -> tuple[str, ...]:
        """The names after constants, threads and accumulate."""
        return self.names[len(self.constants) + 2 :]


def make_plan(
    signature: Signature,
    caller: str,
    variants: Mapping[str, Kernel],
    interface: Procedure,
    graph: Graph | None,
    slots: Sequence[Slot],
    arrays: Sequence[object],
    options: Mapping[str, object],
    outputs: Mapping[str, Shape],
    wanted: Collection[str],
) -> Plan:
    """Check a call, select the compiled variant and lay out its arguments."""
    codes, known, numbers = _codes(signature.options, options)
    if graph is not None:
        known.update(graph._sizes()._asdict())
    named = dict(zip(signature.inputs, arrays, strict=False))
    if signature.one_of and all(named[name] is None for name in signature.one_of):
        raise TypeError(f"{caller}: expected {' or '.join(signature.one_of)}, got neither")
    dtype, arrays = check_arrays(caller, slots, arrays)
    declared = {s.name: s.shape for s in slots} | dict(outputs)
    slots, outputs, codes["packed"] = _choose_forms(signature, slots, arrays, outputs)
    solve_sizes(signature, caller, slots, arrays, options, known)
    for role, mask in (("input", "present"), ("cotangent", "given")):
        held = [a is not None for s, a in zip(slots, arrays, strict=True) if s.role == role]
        codes[mask] = _bits(held)
    codes["wanted"] = _bits([name in wanted for name in outputs])
    axes = {s.name: s.shape for s in slots} | dict(outputs)
    shapes = {name: tuple(size.value(known) for size in axes[name]) for name in axes}

    kernel = variants[VARIANTS[dtype.char]]
    arguments = interface.parameters
    indices = [name for name in arguments if name in INDEX_ARRAYS]
    missing = {f"no {name}" for name, array in named.items() if array is None}
    missing |= {"", *([] if known.get("shared_edges") else ["no shared"])}
    unread = tuple(s for case, some in signature.unread.items() if case in missing for s in some)
    used = [s.name for s, a in zip(slots, arrays, strict=True) if a is not None]
    seeds = [s.name for s in slots if s.role == "gy"]
    reads = any(name[1:] not in seeds for name in wanted)
    zeros = [name for name in seeds if reads and name not in used]
    used += zeros + [name for name in outputs if name in wanted]
    flat = {i.shape for i in signature.inputs.values() if len(i.forms) > 1}
    types = {s.name: HALF for s in slots if s.half}
    absent = {
        n: np.empty((0, *(() if declared[n] in flat else shapes[n][1:])), types.get(n, dtype)).T
        for n in shapes
        if n not in used
    }
    constants = {**known, **codes, **numbers, **absent}
    taken = [s.name for s, a in zip(slots, arrays, strict=True) if a is not None]
    made = [name for name in outputs if name in wanted]
    names = [*constants, "threads", "accumulate", *indices, *signature.indexed, *used]
    wants = {
        i.name: known[i.length] if options[i.option] == i.choice else None
        for i in signature.indexed.values()
    }
    return Plan(
        kernel,
        dtype,
        tuple(constants.values()),
        tuple(indices),
        tuple(shapes[name] for name in zeros),
        tuple(shapes[name] if name in wanted else None for name in outputs),
        itemgetter(*map(names.index, arguments)),
        tuple(names),
        flat=(_places(taken, declared, flat), _places(made, declared, flat)),
        indexed=wants,
        read=tuple("" if name.startswith(unread) else name for name in indices),
        zero_dtype=HALF if types else dtype,
    )


def solved_shapes(
    signature: Signature,
    caller: str,
    known: Mapping[str, int],
    slots: Sequence[Slot],
    arrays: Sequence[Shaped | None],
    options: Mapping[str, object],
    outputs: Mapping[str, Shape],
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the outputs, for arrays that have shapes but perhaps no elements."""
    _, sizes, _ = _codes(signature.options, options)
    found = {**sizes, **known}
    slots, outputs, _ = _choose_forms(signature, slots, arrays, outputs)
    solve_sizes(signature, caller, slots, arrays, options, found)
    return {n: tuple(size.value(found) for size in shape) for n, shape in outputs.items()}


def _places(
    names: Sequence[str], declared: Mapping[str, Shape], chosen: Container[Shape]
) -> tuple[int, ...]:
    return tuple(i for i, name in enumerate(names) if declared[name] in chosen)


def _bits(flags: Sequence[bool]) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def check_options(
    caller: str, declared: Mapping[str, Option], options: Mapping[str, object]
) -> Options:
    """Return the options, converted to Python types."""
    found: Options = {}
    for name, option in declared.items():
        label, value = f"{caller}: {name}", options[name]
        if option.choices:
            if not isinstance(value, (bool, np.bool_) if option.kind is bool else str):
                raise TypeError(f"{label}: expected one of {option.choices}, got {value!r}")
            if value not in option.choices:
                raise ValueError(f"{label}: expected one of {option.choices}, got {value!r}")
            found[name] = option.choices[option.choices.index(value)]
        elif option.is_size:
            found[name] = check_size(label, value, option.bounds.least, option.bounds.most)
        else:
            found[name] = check_number(label, value)
    return found


def _codes(
    declared: Mapping[str, Option], options: Mapping[str, object]
) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
    """Return the integer codes of the choices, the sizes and the real numbers of the options."""
    codes: dict[str, int] = {}
    sizes: dict[str, int] = {}
    numbers: dict[str, float] = {}
    for name, option in declared.items():
        value = options[name]
        if option.kind is bool:
            codes[name] = int(value is True)
        elif option.choices:
            codes[name] = 1 + option.choices.index(value)
        elif isinstance(value, int):
            sizes[name] = value
        elif isinstance(value, float):
            numbers[name] = value
    return codes, sizes, numbers


def check_arrays(
    caller: str, slots: Sequence[Slot], arrays: Sequence[object]
) -> tuple[Dtype, list[Array | None]]:
    """Return the common dtype of all arrays given, in native byte order, and the arrays."""
    first = ""
    dtype: Dtype | None = None
    found: list[Array | None] = []
    for slot, given in zip(slots, arrays, strict=True):
        label = f"{caller}: {slot.label}"
        if given is None:
            if slot.needed:
                raise TypeError(f"{label}: expected a NumPy array, got None")
            found.append(None)
            continue
        array = check_array(label, given, (HALF.char,) if slot.half else VARIANTS)
        found.append(array)
        if slot.shape is not ANY and all(len(form) != array.ndim for form in slot.forms):
            forms = " or ".join(show_shape(form, {}) for form in slot.forms)
            raise ValueError(f"{label}: expected shape {forms}, got {array.shape}")
        if slot.half:
            continue
        if dtype is None:
            first, dtype = slot.label, array.dtype.newbyteorder("=")
        elif array.dtype.char != dtype.char:
            raise TypeError(f"{label}: expected {dtype} like {first}, got {array.dtype}")
    return np.dtype(np.float32) if dtype is None else dtype, found


def _choose_forms(
    signature: Signature,
    slots: Sequence[Slot],
    arrays: Sequence[Shaped | None],
    outputs: Mapping[str, Shape],
) -> tuple[list[Slot], dict[str, Shape], int]:
    """Select the form of each input by rank; return slots, outputs and bits of second forms."""
    chosen, second = {}, []
    for i, array in zip(signature.inputs.values(), arrays, strict=False):
        second.append(len(i.forms) > 1 and array is not None and array.ndim == len(i.forms[1]))
        chosen[i.forms[0]] = i.forms[second[-1]]
    return (
        [replace(s, forms=(chosen.get(s.shape, s.shape),)) for s in slots],
        {name: chosen.get(shape, shape) for name, shape in outputs.items()},
        _bits(second),
    )


def solve_sizes(
    signature: Signature,
    caller: str,
    slots: Sequence[Slot],
    arrays: Sequence[Shaped | None],
    options: Mapping[str, object],
    known: dict[str, int],
) -> None:
    """Solve for all sizes from the inputs, then refuse every shape that contradicts them."""

    def mismatch(slot: Slot, shape: tuple[int, ...], condition: str = "") -> ValueError:
        expected = show_shape(slot.shape, known)
        return ValueError(
            f"{caller}: {slot.label}: expected shape {expected}{condition}, got {shape}"
        )

    held = [(s, a.shape) for s, a in zip(slots, arrays, strict=True) if a is not None]
    inputs = [(slot, shape) for slot, shape in held if slot.role == "input"]
    for slot, shape in inputs:
        if len(shape) != len(slot.shape):
            raise mismatch(slot, shape)
    absent = [s.name for s, a in zip(slots, arrays, strict=True) if a is None]
    follows = tuple(signature.follows(options, absent).items())
    order = solving_order(tuple(s.shape for s, _ in inputs), follows, frozenset(known))
    for size, name, axis in order:
        if axis is None:
            known[name] = size.value(known)
            continue
        slot, shape = inputs[axis[0]]
        length = shape[axis[1]]
        if not name:
            if size.value(known) != length:
                raise mismatch(slot, shape)
            continue
        value = size.solve(name, length, known)
        if value is None:
            sizes = "".join(f"{n}={known[n]}, " for n in sorted(size.names & known.keys()))
            raise mismatch(slot, shape, f" with {sizes}a whole {name} >= 1")
        known[name] = value
    for slot, shape in held:
        if shape != tuple(size.value(known) for size in slot.shape):
            raise mismatch(slot, shape)
        for name, most in signature.at_most.items():
            if known[name] > known[most] and {name, most} <= _names(slot.shape):
                raise ValueError(
                    f"{caller}: {slot.label}: expected {name} <= {most}, got {name}={known[name]} "
                    f"and {most}={known[most]} from shape {shape}"
                )
    for flag, (one, other) in signature.equal.items():
        if options[flag] and known[one] != known[other]:
            raise ValueError(
                f"{caller}: {flag}: expected {one} = {other}, got {one}={known[one]} "
                f"and {other}={known[other]}"
            )


def _names(shape: Shape) -> frozenset[str]:
    return frozenset[str]().union(*(size.names for size in shape))
