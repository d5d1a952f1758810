"""Elementwise operators with broadcasting, generated from the table of functions.

Phases here and those of reductions and selections plan their calls alike, so this is one module.
"""

from __future__ import annotations

import functools
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

import numpy as np

from .. import _functions
from .._functions import CODES, FUNCTIONS, Function
from .._schema import Procedure, elementwise
from .arrays import VARIANTS
from .broadcast import (
    Lengths,
    Strides,
    broadcast,
    element_strides,
    flat,
    make_layout,
    packed,
    readable,
    spread,
)
from .half import round_bits
from .operator import Operator
from .phase import Phase
from .plan import HALF, Kernel, Plan, check_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .types import Array, Dtype, Options, Shaped, Values

DECLARATION = "elementwise"
OPERATIONS = {"sum": 1, "max": 2, "min": 3}
ARRAYS = {
    "forward": ("x1", "x2", "y"),
    "backward": ("x1", "x2", "gy", "gx1", "gx2"),
    "double_backward": ("x1", "x2", "gy", "hx1", "hx2", "dx1", "dx2", "dgy"),
}
RESULTS = "y", "gx1", "gx2", "dx1", "dx2", "dgy"
INTERFACES = elementwise()
_PROPERTIES: Callable[[Array], tuple[object, ...]] = attrgetter("shape", "strides", "dtype.char")
READ_AS = dict(zip("xyghk", ARRAYS["double_backward"], strict=False))


def plan_call(
    variants: Mapping[str, Kernel],
    phase: str,
    function: str,
    space: Lengths,
    operands: Mapping[str, tuple[Lengths, Strides]],
    results: Mapping[str, Lengths],
    dtype: Dtype,
    outputs: Sequence[Lengths | None],
    *,
    operation: str = "sum",
    constant: float = 0.0,
    divisor: float = 1.0,
    fill: float = 0.0,
    fixed: Mapping[str, Array] | None = None,
    half: str = "",
) -> Plan:
    """Plan a kernel call for operands and results of these shapes and strides.

    Both are keyed by the names of the kernel's arguments; `fixed` are further operands, of one
    element each. A result is summed (or its extreme
    taken) along the axes of the iteration space that its shape lacks. `outputs` has the shapes of
    the results that the caller sees. With `half` all arrays hold the bits of that type.
    """
    arrays = ARRAYS[phase]
    stored = HALF if half else dtype
    wanted = sum(1 << i for i, n in enumerate(n for n in arrays if n in RESULTS) if n in results)
    read: dict[str, tuple[Lengths, Strides]] = {**operands, **dict.fromkeys(fixed or {}, ((), ()))}
    given = sum(1 << i for i, name in enumerate(("hx1", "hx2")) if name in read)
    reads = _reads(FUNCTIONS[CODES[function] - 1], phase, given, wanted)
    strides = [spread(space, *read[n]) if n in reads & read.keys() else None for n in arrays]
    for i, name in enumerate(arrays):
        if name in results:
            strides[i] = spread(space, results[name], packed(results[name]))
    layout = make_layout(space, tuple(strides), sum(name in RESULTS for name in arrays))
    constants = {
        "axes": layout.table.shape[1],
        "split": layout.split,
        "piece": layout.piece,
        "parts": layout.parts,
        "code": CODES[function],
        "operation": OPERATIONS[operation],
        "present": sum(1 << i for i, name in enumerate(arrays) if name in reads),
        "wanted": wanted,
        "given": given,
        "constant": constant,
        "divisor": divisor,
        "layout": layout.table.T,
        "nothing": np.zeros(1, stored),
        **(fixed or {}),
    }
    names = [*constants, "threads", "accumulate", *operands, *results]
    slots = [name if name in names else "nothing" for name in INTERFACES[phase].parameters]
    return Plan(
        variants[VARIANTS[dtype.char]],
        stored,
        tuple(constants.values()),
        (),
        (),
        tuple(outputs),
        itemgetter(*map(names.index, slots)),
        tuple(names),
        None if layout.parts else _stored(fill, half),
    )


def _stored(number: float, half: str) -> float:
    """Return a number as arrays hold it."""
    return int(round_bits(np.full(1, number, np.float32), half)[0]) if half else number


def _reads(function: Function, phase: str, given: int, wanted: int) -> set[str]:
    """Return the operands that the requested results depend on."""
    forms = [1] if phase == "forward" else [2, 3]
    if phase == "double_backward":
        forms = [6 + given, 9 + given, 3 + given] if given else []
    names: set[str] = set()
    for bit, form in enumerate(forms):
        if wanted >> bit & 1:
            names.update(function.variables(_functions.FORMS[form - 1](function)))
    return {READ_AS[name] for name in names}


def kernel_name(name: str) -> str:
    """Return the kernel's name of an array; kernels number the inputs."""
    return name + "1" if name.endswith("x") else name


def is_zero(name: str) -> bool:
    """Return whether a plan names an output that is 0 so, which no kernel writes."""
    return name.startswith("zero")


class BroadcastPhase(Phase):
    """Phase whose kernel takes arrays with any strides."""

    properties = staticmethod(_PROPERTIES)
    view = staticmethod(flat)
    to_readable = staticmethod(readable)

    def __init__(self, operator: Operator, name: str, half: str = "") -> None:
        super().__init__(operator.signature, operator.name, name, DECLARATION, half=half)
        self.operator, self.function = operator, operator.name

    def _with(self, half: str) -> Phase:
        return type(self)(self.operator, self.name, half)

    @functools.cached_property
    def rows(self) -> frozenset[str]:
        return frozenset(slot.name for slot in self.slots)

    def _interface(self) -> Procedure:
        return INTERFACES[self.kernel]

    @functools.cached_property
    def absent(self) -> dict[str, None]:
        return dict.fromkeys(ARRAYS.get(self.kernel) or super().absent)

    def _inputs(self, given: Sequence[object]) -> list[Array]:
        return [flat(array) for array in given if isinstance(array, np.ndarray)]

    def prepared(
        self,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None,
        threads: object,
        inputs: Sequence[object],
        outputs: Sequence[object],
    ) -> Values | None:
        values = super().prepared(given, options, wanted, threads, inputs, outputs)
        return None if values is None or any(map(is_zero, values)) else values

    def _execute(
        self,
        plan: Plan,
        given: Sequence[object],
        options: Options,
        rows: Options,
        out: Sequence[Array | None] | None,
        accumulate: bool,
    ) -> tuple[Array | None, ...]:
        found = super()._execute(plan, given, options, rows, out, accumulate)
        if any(map(is_zero, plan.names)) and not accumulate:
            made = [array for array in found if array is not None]
            for name, array in zip(plan.names[-len(made) :], made, strict=True):
                if is_zero(name):
                    array[...] = 0
        return found

    def _expect(self, arrays: Sequence[Array | None], shapes: Mapping[str, Lengths]) -> None:
        """Refuse cotangents that do not have the shapes of inputs and output."""
        for slot, array in zip(self.slots, arrays, strict=True):
            shape = shapes[slot.name.removeprefix("h")]
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"{self.caller}: {slot.label}: expected shape {shape}, got {array.shape}"
                )

    def _shapes(
        self, names: Collection[str], shapes: Mapping[str, Lengths]
    ) -> list[Lengths | None]:
        """Return the shapes of the outputs, None for those not requested."""
        return [
            shapes["gy" if name in ("y", "dgy") else name[1:]] if name in names else None
            for name in self.outputs
        ]


class ElementwisePhase(BroadcastPhase):
    """Phase of an elementwise function of the table."""

    def output_shape(
        self,
        sizes: Mapping[str, int],
        arrays: Sequence[Shaped | None],
        options: Mapping[str, object],
    ) -> Lengths:
        self.checked(options)
        held = zip(self.signature.inputs, arrays, strict=True)
        return broadcast(self.caller, {name: array for name, array in held if array is not None})

    def _make_plan(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> Plan:
        _, split = self._split(given)
        checked = self.checked(options)
        names = self._wants(wanted, split)
        dtype, arrays = check_arrays(self.caller, self.slots, split)
        held = zip(self.signature.inputs, arrays, strict=False)
        inputs = {name: array for name, array in held if array is not None}
        space = broadcast(self.caller, inputs)
        shapes = {name: array.shape for name, array in inputs.items()} | {"gy": space}
        self._expect(arrays, shapes)
        outputs = self._shapes(names, shapes)
        operands, results = self._kernel_names()
        constant, fixed = self._from_options(checked, dtype)
        return plan_call(
            self._variants,
            self.kernel,
            self.function,
            space,
            {
                name: (array.shape, element_strides(array))
                for name, array in zip(operands, arrays, strict=True)
                if array is not None
            },
            {
                name: shape
                for name, shape in zip(results, outputs, strict=True)
                if shape is not None
            },
            dtype,
            outputs,
            constant=constant,
            fixed=fixed,
            half=self.half,
        )

    def _kernel_names(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the kernel's names of the arrays and of the outputs."""
        arrays, outputs = (slot.name for slot in self.slots), self.outputs
        return [*map(kernel_name, arrays)], [*map(kernel_name, outputs)]

    def _from_options(
        self, options: Mapping[str, object], dtype: Dtype
    ) -> tuple[float, dict[str, Array]]:
        """Return the constant of the function, and operands that the options give."""
        return next((n for n in options.values() if isinstance(n, float)), 0.0), {}


class Elementwise(Operator):
    """Elementwise operator with broadcasting, given by a function of the table."""

    declaration = DECLARATION

    def __init__(self, function: Function, declaration: Callable[..., object]) -> None:
        declaration.__doc__ = describe(function)
        declaration.__name__ = function.name
        super().__init__(declaration)

    def _make_phase(self, name: str) -> Phase:
        return ElementwisePhase(self, name)


def describe(function: Function) -> str:
    """Return the docstring of a function of the table."""
    names = "x" if function.arity == 1 else "x1, x2"
    shapes = "any shape" if function.arity == 1 else "shapes that broadcast"
    text = f"{function.summary}, element by element.\n\n.. math:: y = {function.formula}\n\n"
    if function.choice:
        text += f"{function.choice}\n\n"
    text += f"Parameters\n----------\n{names} : array, {shapes}\n"
    text += f"    {'Operand' if function.arity == 1 else 'Operands, broadcast to one shape'}.\n"
    option, _, meaning = function.option
    if option:
        text += f"{option} : float\n    {meaning}\n"
    returned = "of x" if function.arity == 1 else "that they have together"
    text += f"\nReturns\n-------\narray, the shape {returned}\n"
    text += "    Value of the function at each element.\n\n"
    return text + (
        "Notes\n-----\nTime O(n) for n elements. Memory beside inputs and results: at most 192 KB "
        "for\neach thread; for gradients of broadcast operands float64 sums of their size."
    )
