"""Compound operators: several operators of the same inputs with one check and all results."""

from __future__ import annotations

import builtins
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._schema import Argument, Procedure, Signature
from .eager import eager
from .operator import OPERATORS, Operator
from .phase import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .plan import Kernel
    from .types import Array, Values

COMPOUNDS: dict[str, Compound] = {}
"""Table of the compound operators, filled by the declarations."""


class Compound(Operator):
    """Operator that returns the results, and the gradients, of several other operators.

    `parts` maps each result to its operator, in the order in which the kernels run. The parts
    take inputs and options by the compound's names.
    """

    def __init__(self, function: Callable[..., object], parts: Mapping[str, Operator]) -> None:
        self.parts = parts
        super().__init__(function)

    def _register(self) -> None:
        COMPOUNDS[self.name] = self

    def _make_phase(self, name: str) -> Phase:
        return CompoundPhase(self.signature, self.name, name, self.parts)

    @eager
    def __call__(
        self,
        *inputs: object,
        out: Any = None,
        accumulate: bool = False,
        **options: object,
    ) -> object:
        """Return the results; `out` has an array, or None, for each."""
        phase = self._phases["forward"]
        return phase.run(phase.arguments(inputs, options), options, None, out, accumulate)

    def jvp(
        self,
        *inputs_and_tangents: object,
        saved: tuple[Array, ...] | None = None,
        out: Any = None,
        accumulate: bool = False,
        **options: object,
    ) -> Any:
        """Return the derivatives of the results in the direction of the tangents."""
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
    """Phase of a compound; its kernel runs those of the parts one after another."""

    def __init__(
        self, signature: Signature, operator: str, name: str, parts: Mapping[str, Operator]
    ) -> None:
        self._parts = {
            y: Phase(op.signature, operator, name, op.declaration) for y, op in parts.items()
        }
        super().__init__(signature, operator, name, operator)
        if name == "jvp":
            self.labels |= {"dg" + y: f"out: d{y}" for y in signature.results}

    @property
    def parts(self) -> tuple[Phase, ...]:
        return tuple(self._parts.values())

    def shares(self, values: Values) -> Iterator[tuple[Phase, Values]]:
        """Yield each part and its arguments; it accumulates where an earlier part has written."""
        written: set[str] = set()
        for y, part in self._parts.items():
            named = _renamed(y)
            own = {n: values[m] for n, m in named.items() if m in values}
            outputs = [named.get(n, n) for n in part.outputs]
            inputs = [*self.signature.inputs], [*part.signature.inputs]
            masks = {"present": inputs, "given": inputs, "wanted": ([*self.outputs], outputs)}
            own |= {m: _select_bits(values[m], *names) for m, names in masks.items() if m in values}
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

    def _interface(self) -> Procedure:
        """Return the arguments of all parts, once each."""
        taken = {
            _renamed(y).get(a.name, a.name): a
            for y, part in self._parts.items()
            for a in part.interface.arguments
        }
        taken["wanted"] = Argument("wanted", "int32", "value")
        status = taken.pop("status")
        arguments = (replace(a, name=name) for name, a in taken.items())
        return Procedure(self.signature.name, self.kernel, (*arguments, status))

    def _kernel(self, variant: str) -> Kernel:
        kernels = {part: part._variants[variant] for part in self.parts}
        names = self._interface().parameters

        def kernel(*values: object) -> int:
            for part, own in self.shares(dict(zip(names, values, strict=True))):
                status = kernels[part](*(own[name] for name in part.interface.parameters))
                if status:
                    return status
            return 0

        return kernel


def starred() -> list[str]:
    """Return the operators of a star import: none that would shadow a builtin (abs, sum)."""
    return [name for name in (*OPERATORS, *COMPOUNDS) if not hasattr(builtins, name)]


def _renamed(y: str) -> dict[str, str]:
    """Map a part's names for its result, cotangent and their derivative to the compound's."""
    return {"y": y, "gy": "g" + y, "dgy": "dg" + y}


def _select_bits(mask: int, names: Sequence[str], some: Sequence[str]) -> int:
    """Return the bits of `mask` for the names in `some`, renumbered in their order."""
    return sum((mask >> names.index(name) & 1) << place for place, name in enumerate(some))
