"""Shared parts of the framework front ends: an operator as a function of their arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from .._schema import show_shape
from .arguments import by_position
from .half import TYPES
from .operator import OPERATORS
from .selection import in_type
from .several import of_framework
from .types import Options, Typed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .compound import Compound
    from .operator import Operator

Found = TypeVar("Found")
FrameworkArray = TypeVar("FrameworkArray", bound=Typed)
Inputs: TypeAlias = "tuple[object, ...]"
DETACHED = "The returned attention weights are detached: no gradient flows through them."


class FrameworkFunction:
    """An operator behind the function of one framework."""

    def __init__(self, op: Operator, framework: str) -> None:
        self.op, self.module = op, f"pyops.{framework}"
        self.label = f"{self.module}.{op.name}"
        self._places = [
            (f"{self.label}: {i.name}", i.optional) for i in op.signature.inputs.values()
        ]
        # set before torch traces the code that reads it
        self._least, self._has_graph = op.signature.required, op.signature.has_graph
        self._names = op.signature.positional

    def arguments(
        self,
        given: tuple[object, ...],
        options: Options,
        check_graph: Callable[[str, object], Found],
        check: Callable[[str, object], FrameworkArray],
    ) -> tuple[Found | None, list[FrameworkArray | None]]:
        """Return the graph, None if the operator has none, and one array or None for each input.

        Inputs given by name are removed from the options.
        """
        given = by_position(self.label, self._names, given, options)
        graph, arrays = None, given
        if self._has_graph and given:
            graph, arrays = check_graph(self.label, given[0]), given[1:]
        most = len(self._places)
        if not self._least <= len(arrays) <= most:
            names = ", ".join(self._names)
            count = len(arrays) + self._has_graph
            raise TypeError(f"{self.label}: expected arguments ({names}), got {count}")
        found = [
            None if a is None and optional else check(label, a)
            for a, (label, optional) in zip(arrays, self._places, strict=False)
        ]
        return graph, found + [None] * (most - len(found))

    def document(self, call: Callable[..., object]) -> None:
        """Set name, signature and docstring of the function to those of the operator."""
        call.__name__ = call.__qualname__ = self.op.name
        call.__module__ = self.module
        call.__doc__ = self.op.__doc__
        if self.op.signature.attention:
            call.__doc__ = f"{call.__doc__}\n\n{DETACHED}"
        call.__signature__ = self.op.__signature__  # type: ignore[attr-defined]


def compound(
    op: Compound,
    framework: str,
    functions: Mapping[str, Callable[..., Typed]],
    check: Callable[[str, object], Typed],
) -> Callable[..., tuple[Typed, ...]]:
    """Combine the functions of several operators into the function of a compound.

    Arguments are checked here, in steps that frameworks can trace, so that error messages name
    the compound.
    """
    front_end, declared = FrameworkFunction(op, framework), op.signature.inputs
    shapes = {i.name: [size.text for size in i.shape] for i in declared.values()}
    parts = [
        (functions[part.name], [*part.signature.inputs], [*part.signature.options])
        for part in (op.parts[y] for y in op.signature.results)
    ]

    def call(*inputs: object, **options: object) -> tuple[Typed, ...]:
        _, arrays = front_end.arguments(inputs, options, _no_graph, check)
        options = op.checked(options)
        held = {n: a for n, a in zip(declared, arrays, strict=True) if a is not None}
        first = next(iter(held))
        dtype = held[first].dtype
        for name, array in held.items():
            label, shape, sizes = f"{front_end.label}: {name}", tuple(array.shape), shapes[name]
            if array.dtype != dtype:
                raise TypeError(f"{label}: expected {dtype} like {first}, got {array.dtype}")
            if len(shape) != len(sizes) or shape != tuple(map(options.get, sizes, shape)):
                known = {n: size for n, size in options.items() if isinstance(size, int)}
                expected = show_shape(declared[name].shape, known)
                raise ValueError(f"{label}: expected shape {expected}, got {shape}")
        return tuple(
            [
                function(*[held[n] for n in names], **{n: options[n] for n in chosen})
                for function, names, chosen in parts
            ]
        )

    front_end.document(call)
    return call


def adapted(
    functions: Mapping[str, Callable[..., object]],
    framework: str,
    as_numbers: Callable[[str, object, object], object],
) -> dict[str, Callable[..., object]]:
    """Return the functions whose arguments differ from what their operators take.

    `as_numbers` checks a condition and returns it as numbers like the second input.
    """

    def condition(label: str, inputs: Inputs, options: Options) -> tuple[Inputs, Options]:
        if len(inputs) > 1:
            inputs = (as_numbers(f"{label}: condition", *inputs[:2]), *inputs[1:])
        return inputs, options

    def bounds(label: str, inputs: Inputs, options: Options) -> tuple[Inputs, Options]:
        kind = str(getattr(inputs[0], "dtype", "")).removeprefix("torch.") if inputs else ""
        return inputs, in_type(clip.checked(options), kind) if kind in TYPES else options

    clip, aggregate = OPERATORS["clip"], OPERATORS["aggregate"]
    return {
        "where": _changed(functions["where"], framework, condition),
        "clip": _changed(functions["clip"], framework, bounds),
        "aggregate": of_framework(functions["aggregate"], aggregate, framework),
    }


def _changed(
    function: Callable[..., object],
    framework: str,
    change: Callable[[str, Inputs, Options], tuple[Inputs, Options]],
) -> Callable[..., object]:
    """Return the function of an operator with changed inputs and options."""
    op = OPERATORS[function.__name__]
    front_end, names = FrameworkFunction(op, framework), op.signature.positional

    def call(*inputs: object, **options: object) -> object:
        inputs = by_position(front_end.label, names, inputs, options)
        inputs, options = change(front_end.label, inputs, options)
        return function(*inputs, **options)

    front_end.document(call)
    return call


def _no_graph(label: str, graph: object) -> None:
    """Accept no graph: compound operators have none."""
