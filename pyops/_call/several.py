"""Operators whose option `reduce` may be a tuple, for one result of each reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from .operator import Operator
from .phase import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .._schema import Signature
    from .types import Array, Options

CHOICE = "reduce"
Outputs: TypeAlias = "tuple[Array | None, ...]"


def choices(caller: str, signature: Signature, options: Options) -> list[Options] | None:
    """Return the options of a call for each of several results, None if it has one result."""
    given, label = options.get(CHOICE), f"{caller}: {CHOICE}"
    if not isinstance(given, tuple):
        return None
    known = signature.options[CHOICE].choices
    for name in given:
        if name not in known:
            raise ValueError(f"{label}: expected names among {known}, got {name!r}")
    if not given or len({*given}) < len(given):
        raise ValueError(f"{label}: expected different names, got {given!r}")
    return [{**options, CHOICE: name} for name in given]


class SeveralPhase(Phase):
    """Phase whose result, or cotangent or tangent of it, may be a tuple of arrays.

    Gradients by the inputs are then sums. Each reduction is a call of its own.
    """

    def run(
        self,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None = None,
        out: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> Outputs:
        comm = getattr(given[0], "comm", None) if given else None
        try:
            several = choices(self.caller, self.signature, options)
            calls, last = self._separate(given, out, several or [])
        except ValueError as error:
            if comm is not None:
                comm._agree(self.caller, (), error)  # raises it on all ranks
            raise
        if several is None:
            return super().run(given, options, wanted, out, accumulate)
        if comm is not None:
            comm._agree(self.caller, tuple(one[CHOICE] for one in several))
        if self.name == "backward":
            return self._summed(calls, wanted, out, accumulate)
        if self.name == "double_backward":
            return self._second(calls, wanted, out, accumulate, last)
        none = (None,) * (len(self.outputs) - 1)
        run = super().run
        made = [
            run(arguments, one, None, (*none, array), accumulate)[-1]
            for (arguments, one), array in zip(calls, last, strict=True)
        ]
        return cast("Outputs", (*none, tuple(made)))

    def _separate(
        self,
        given: Sequence[object],
        out: Sequence[Array | None] | None,
        several: list[Options],
    ) -> tuple[list[tuple[Sequence[object], Options]], list[Array | None]]:
        """Return arguments and options of the call of each reduction, and the last outputs."""
        count = len(several)
        place = {"backward": len(given) - 1, "double_backward": len(given) // 2}.get(self.name)
        calls: list[tuple[Sequence[object], Options]] = [(given, one) for one in several]
        if place is not None and count:
            gys = zip(self._tuple("gy", given[place], count), several, strict=True)
            calls = [((*given[:place], g, *given[place + 1 :]), one) for g, one in gys]
        last = None if out is None or not count or self.name == "backward" else out[-1]
        return calls, self._tuple("out", last, count)

    def _tuple(self, name: str, given: object, count: int) -> list[Array | None]:
        """Return an array or None for each reduction."""
        if given is None:
            return [None] * count
        if not isinstance(given, (tuple, list)) or len(given) != count:
            found = len(given) if isinstance(given, (tuple, list)) else type(given).__name__
            raise ValueError(f"{self.caller}: {name}: expected a tuple of {count}, got {found}")
        return [*given]

    def _summed(
        self,
        calls: Sequence[tuple[Sequence[object], Options]],
        wanted: Collection[str] | None,
        out: Sequence[Array | None] | None,
        accumulate: bool,
    ) -> Outputs:
        """Return the sums of the outputs of some calls, the later ones added to the first."""
        (first, options), *rest = calls
        found = super().run(first, options, wanted, out, accumulate)
        for arguments, options in rest:
            found = super().run(arguments, options, wanted, found, True)
        return found

    def _second(
        self,
        calls: Sequence[tuple[Sequence[object], Options]],
        wanted: Collection[str] | None,
        out: Sequence[Array | None] | None,
        accumulate: bool,
        last: Sequence[Array | None],
    ) -> Outputs:
        """Return the sums of the derivatives by inputs, and a tuple of those by each gy."""
        if wanted is None:
            _, arrays = self._split(calls[0][0])
            held = zip(self.signature.inputs, arrays, strict=False)
            wanted = [*(name for name, array in held if array is not None), "gy"]
        inputs = [name for name in wanted if name != "gy"]
        found: Outputs = (None,) * len(self.outputs)
        if inputs:
            outs = None if out is None else (*out[:-1], None)
            found = self._summed(calls, inputs, outs, accumulate)
        if "gy" not in wanted:
            return found
        none, run = found[:-1], super().run
        made = [
            run(a, o, ("gy",), (*(None for _ in none), array), accumulate)[-1]
            for (a, o), array in zip(calls, last, strict=True)
        ]
        return cast("Outputs", (*none, tuple(made)))


class Several(Operator):
    """Operator with the option `reduce`, which may be a tuple."""

    def _make_phase(self, name: str) -> Phase:
        return SeveralPhase(self.signature, self.name, name, self.declaration)


def of_framework(
    function: Callable[..., object], op: Operator, framework: str
) -> Callable[..., object]:
    """Return the function of an operator that may return a tuple of results."""
    caller = f"pyops.{framework}.{op.name}"

    def call(*inputs: object, **options: object) -> object:
        several = choices(caller, op.signature, options)
        if several is None:
            return function(*inputs, **options)
        return tuple([function(*inputs, **one) for one in several])

    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__signature__"):
        setattr(call, name, getattr(function, name))
    return call
