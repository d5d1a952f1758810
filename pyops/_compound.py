"""Operators of the same inputs as one: checked together, their results side by side."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ._arrays import Array
from ._eager import eager
from ._operator import OPERATORS, Operator
from ._phase import Phase
from ._plan import Kernel, arguments_of
from ._signature import Signature

COMPOUNDS: dict[str, Compound] = {}
"""The table of those, filled by the declarations."""


class Compound(Operator):
    """An operator whose results, and gradients, are those of several others.

    `parts` has one for each result, in the order in which their kernels run. They take inputs and
    options of the compound by the same names.
    """

    table: ClassVar[dict[str, Any]] = COMPOUNDS

    def __init__(self, function: Callable[..., Any], parts: Mapping[str, Operator]) -> None:
        self.parts = parts
        super().__init__(function)

    def _make_phase(self, name: str) -> Phase:
        return CompoundPhase(self.signature, self.name, name, self.parts)

    @eager
    def __call__(
        self,
        *inputs: Any,
        out: Any = None,
        accumulate: bool = False,
        **options: Any,
    ) -> Any:
        """The results; `out` has an array, or None, for each."""
        phase = self._phases["forward"]
        return phase.run(phase.arguments(inputs, options), options, None, out, accumulate)

    @eager
    def jvp(
        self,
        *inputs_and_tangents: Any,
        saved: tuple[Array, ...] | None = None,
        out: Any = None,
        accumulate: bool = False,
        **options: Any,
    ) -> Any:
        """The derivatives of the results in the direction of the tangents."""
        phase, _ = self._with_saved("jvp", saved)
        results = self.signature.results
        if isinstance(out, (tuple, list)):
            if len(out) != len(results):
                names = ", ".join("d" + y for y in results)
                raise ValueError(
                    f"{self.name}.jvp: out: expected one entry for each of {names}, got {len(out)}"
                )
            out = (*(None for _ in self.signature.inputs), *out)
        given = phase.arguments(inputs_and_tangents, options)
        found = phase.run(given, options, None, out, accumulate)
        return found[-len(results) :]


class CompoundPhase(Phase):
    """A phase of a compound, whose kernel runs those of its parts one after another."""

    def __init__(
        self, signature: Signature, operator: str, name: str, parts: Mapping[str, Operator]
    ) -> None:
        self._parts = {y: Phase(op.signature, operator, name, op.room) for y, op in parts.items()}
        super().__init__(signature, operator, name, operator)
        if name == "jvp":
            self.labels |= {"dg" + y: f"out: d{y}" for y in signature.results}

    @property
    def parts(self) -> tuple[Phase, ...]:
        return tuple(self._parts.values())

    def shares(self, values: dict[str, Any]) -> Iterator[tuple[Phase, dict[str, Any]]]:
        """What each part takes; it adds to an output that one before it has written."""
        written: set[str] = set()
        for y, part in self._parts.items():
            named = _renamed(y)
            own = {n: values[m] for n, m in named.items() if m in values}
            outputs = [named.get(n, n) for n in part.outputs]
            inputs = [*self.signature.inputs], [*part.signature.inputs]
            masks = {"present": inputs, "given": inputs, "wanted": ([*self.outputs], outputs)}
            own |= {m: _picked(values[m], *names) for m, names in masks.items() if m in values}
            made = {n for i, n in enumerate(outputs) if own["wanted"] >> i & 1}
            adds = values["accumulate"] or not made.isdisjoint(written)
            if adds and not values["accumulate"]:
                for name in made - written:
                    values[name][...] = 0
            written |= made
            if made:
                yield part, {**values, **own, "accumulate": adds}

    def _compiled(self) -> dict[str, Kernel]:
        return {variant: self._kernel(variant) for variant in ("r4", "r8")}

    def _kernel(self, variant: str) -> Kernel:
        kernels = {part: part._variants[variant] for part in self.parts}
        taken = {
            _renamed(y).get(name, name)
            for y, part in self._parts.items()
            for name in arguments_of(kernels[part])
        }
        names = sorted(taken | {"accumulate", "wanted"})

        def kernel(*values: Any) -> int:
            for part, own in self.shares(dict(zip(names, values, strict=True))):
                status = kernels[part](*(own[name] for name in arguments_of(kernels[part])))
                if status:
                    return status
            return 0

        kernel.__doc__ = f"status = kernel({','.join(names)})"
        return kernel


def starred() -> list[str]:
    """The operators that a star import brings: none in the place of Python's own abs or sum."""
    return [name for name in (*OPERATORS, *COMPOUNDS) if not hasattr(builtins, name)]


def _renamed(y: str) -> dict[str, str]:
    """What the compound calls the result of a part, its cotangent, and the derivative by that."""
    return {"y": y, "gy": "g" + y, "dgy": "dg" + y}


def _picked(mask: int, names: Sequence[str], some: Sequence[str]) -> int:
    """The bits of some of the names, in their order."""
    return sum((mask >> names.index(name) & 1) << place for place, name in enumerate(some))
