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
            if several is not None:
                self._check_tuples(given, out, several)
        except ValueError as error:
            if comm is not None:
                comm._agree(self.caller, (), error)  # raises it on all ranks
            raise
        if several is None:
            return super().run(given, options, wanted, out, accumulate)
        if comm is not None:
            comm._agree(self.caller, tuple(one[CHOICE] for one in several))
        if self.name == "backward":
            *inputs, gy = given
            calls = [((*inputs, g), o) for g, o in self._paired("gy", gy, several)]
            return self._summed(calls, wanted, out, accumulate)
        last = self._paired("out", None if out is None else out[-1], several)
        if self.name == "double_backward":
            place = len(given) // 2
            calls = [
                ((*given[:place], g, *given[place + 1 :]), o)
                for g, o in self._paired("gy", given[place], several)
            ]
            return self._second(calls, wanted, out, accumulate, [o for o, _ in last])
        none = (None,) * (len(self.outputs) - 1)
        run = super().run
        made = [run(given, o, None, (*none, a), accumulate)[-1] for a, o in last]
        return cast("Outputs", (*none, tuple(made)))

    def _paired(
        self, name: str, given: object, several: list[Options]
    ) -> list[tuple[Array | None, Options]]:
        """Return an array or None with the options of each reduction."""
        if given is None:
            return [(None, one) for one in several]
        count = len(several)
        if not isinstance(given, (tuple, list)) or len(given) != count:
            found = len(given) if isinstance(given, (tuple, list)) else type(given).__name__
            raise ValueError(f"{self.caller}: {name}: expected a tuple of {count}, got {found}")
        return list(zip(given, several, strict=True))

    def _check_tuples(
        self,
        given: Sequence[object],
        out: Sequence[Array | None] | None,
        several: list[Options],
    ) -> None:
        places = {"backward": len(given) - 1, "double_backward": len(given) // 2}
        if self.name in places:
            self._paired("gy", given[places[self.name]], several)
        if self.name != "backward" and out is not None:
            self._paired("out", out[-1], several)

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
