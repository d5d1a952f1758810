"""Operators: a declared signature over compiled kernels, the only way to call these.

Most of the module is one class.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from .._schema import Signature
from ..graph import Graph
from .arrays import kind_of
from .backends import find_backend
from .eager import eager
from .phase import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .types import Array, Options, Shaped

_PLAIN = np.ndarray, Graph, type(None)
OPERATORS: dict[str, Operator] = {}
"""Operator table, filled by the declarations."""


class Operator:
    """A differentiable function of arrays, and of a graph where it has one.

    Made from a function without a body: its signature declares inputs, shapes and options, its
    docstring the formula. Keywords state what annotations cannot, see `Signature`.
    """

    def __init__(self, function: Callable[..., object], **properties: object) -> None:
        self.signature = Signature.of(function, **properties)
        self.name = self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = function.__module__
        self.__signature__ = self.signature.readable()
        self.__doc__ = f"{self._usage()}\n\n{inspect.getdoc(function)}\n\n{self._derivatives()}"
        names = ("forward", "backward", "double_backward", "jvp")
        self._phases = {name: self._make_phase(name) for name in names}
        self._keeping: dict[str, Phase] = {}
        if self.signature.keeps:
            self._keeping = {
                n: Phase(self.signature, self.name, n, self.declaration, keeping=True)
                for n in names
            }
        self._by_sample: Phase | None = None
        if self.signature.by_sample:
            self._by_sample = Phase(
                self.signature, self.name, "backward", self.declaration, special="by_sample"
            )
        self._attention: Phase | None = None
        if self.signature.attention:
            self._attention = Phase(
                self.signature, self.name, "forward", self.declaration, special="attention"
            )
        for name in names:
            setattr(self, name, self._make_method(name))
        self._register()

    def _register(self) -> None:
        OPERATORS[self.name] = self

    @property
    def declaration(self) -> str:
        """The name under which kernels, declaration and test reference are filed."""
        return self.name

    def _make_phase(self, name: str) -> Phase:
        return Phase(self.signature, self.name, name, self.declaration)

    def _make_method(self, phase: str) -> Callable[..., object]:
        """Return the method of a phase as a function with the signature of this operator."""
        method: Callable[..., object] = eager(getattr(self, phase))
        method.__module__, method.__qualname__ = self.__module__, f"{self.name}.{phase}"
        keywords = [
            p
            for p in inspect.signature(method).parameters.values()
            if p.kind is p.KEYWORD_ONLY and (p.name != "per_sample" or self._by_sample is not None)
        ]
        signature = self._phases[phase].readable(keywords)
        method.__signature__ = signature  # type: ignore[attr-defined]
        return method

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases of the operator: forward and its derivatives."""
        return tuple(self._phases)

    def __repr__(self) -> str:
        return f"{self.name}{self.__signature__}"

    def __reduce__(self) -> str:
        return self.name

    @eager
    def __call__(
        self, *inputs: object, out: Array | None = None, accumulate: bool = False, **options: object
    ) -> Any:
        """Return y; with ``return_attention=True``, where the operator has it, also alpha."""
        phase = self._phases["forward"]
        if not phase.named.isdisjoint(options):
            inputs = phase.arguments(inputs, options)
        wants_attention = "return_attention" in options and self.pop_attention(options)
        (y,) = phase.run(inputs, options, None, None if out is None else (out,), accumulate)
        return (y, self._alpha(inputs, options)) if wants_attention else y

    def run(
        self,
        phase: str,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None = None,
        saved: tuple[Array, ...] | None = None,
        keep: bool = False,
        half: str = "",
    ) -> tuple[Array | None, ...]:
        """Return the results of a phase, or alpha; called by the framework front ends.

        If `keep` is set, intermediates for derivatives follow y. `half` names kernels that read
        rows as 16-bit integers, see `Phase.reading`.
        """
        if phase == "attention":
            return (self._alpha(given, options, half=half),)
        which, kept = self._with_saved(phase, saved)
        if keep:
            which = self._keeping.get(phase, which)
        if half:
            which = which.reading(half)
        return which.run((*given, *kept), options, wanted)

    def reads_halves(self, phase: str, count: int, device: bool = False) -> list[bool]:
        """Return for each of so many arrays of a phase whether kernels read half precision."""
        found = self._attention if phase == "attention" else self._phases[phase]
        assert found is not None
        return found.reads_halves(count, device)

    def pop_attention(self, options: Options) -> bool:
        """Remove and return the ``return_attention`` option of operators that have it."""
        chosen = False if self._attention is None else options.pop("return_attention", False)
        if not isinstance(chosen, (bool, np.bool_)):
            raise TypeError(
                f"{self.name}: return_attention: expected True or False, got {chosen!r}"
            )
        return bool(chosen)

    def attention(self, *inputs: object, out: Array | None = None, **options: object) -> Array:
        """Return alpha of every entry, in the order of the graph, for operators that have it."""
        return self._alpha(inputs, options, out)

    def _alpha(
        self,
        inputs: Sequence[object],
        options: Options,
        out: Array | None = None,
        half: str = "",
    ) -> Array:
        assert self._attention is not None
        phase = self._attention.reading(half) if half else self._attention
        inputs = phase.arguments(tuple(inputs), options)
        (along_rows,) = phase.run(inputs, options)
        assert along_rows is not None
        graph: Any = inputs[0]  # on the host or on a device
        with graph._here():
            alpha = np.empty_like(along_rows) if out is None else out
            alpha[graph._index("in_order") - 1] = along_rows
        return alpha

    def forward(
        self, *inputs: object, out: Array | None = None, accumulate: bool = False, **options: object
    ) -> tuple[object, tuple[Array, ...]]:
        """Return the result of the call, and intermediates for derivatives of the same inputs."""
        inputs = self.arguments(inputs, options)
        others = [a for a in inputs if type(a) not in _PLAIN]
        if not self._keeping or find_backend(others) is not None:
            return self(*inputs, out=out, accumulate=accumulate, **options), ()
        phase = self._keeping["forward"]
        wants_attention = self.pop_attention(options)
        outs = None if out is None else (out, *[None] * (len(phase.outputs) - 1))
        y, kept = phase.run(inputs, options, None, outs, accumulate)
        assert kept is not None
        return (y, self._alpha(inputs, options)) if wants_attention else y, (kept,)

    def backward(
        self,
        *inputs_and_gy: object,
        saved: tuple[Array, ...] | None = None,
        wanted: Collection[str] | None = None,
        out: Sequence[Array | None] | None = None,
        accumulate: bool = False,
        per_sample: bool = False,
        **options: object,
    ) -> tuple[Array | None, ...]:
        """Return the gradients of <gy, y>, one for each array input.

        Parameters
        ----------
        *inputs_and_gy
            The inputs as in the call, then the cotangent of y; by position or by name.
        saved : optional
            Intermediates that `forward` returned with y for the same inputs, which is not checked.
            Passing them skips recomputation and changes no bit of the results.
        wanted : collection of str, optional
            Names of the inputs whose gradients are computed; the others are None.
        out : sequence of arrays or None, optional
            Arrays to write the gradients to, one for each; None allocates one.
        accumulate : bool
            Add to the arrays of `out` instead of overwriting them.
        per_sample : bool
            Return the gradients by a basis for each sample, one packed block each, not summed. Only
            operators whose samples share a basis have it.
        """
        phase, kept = self._with_saved("backward", saved)
        if per_sample is not False and self._check_per_sample(per_sample):
            assert self._by_sample is not None
            phase = self._by_sample
        given = phase.arguments(inputs_and_gy, options)
        return phase.run((*given, *kept), options, wanted, out, accumulate)

    def double_backward(
        self,
        *inputs_gy_and_cotangents: object,
        saved: tuple[Array, ...] | None = None,
        wanted: Collection[str] | None = None,
        out: Sequence[Array | None] | None = None,
        accumulate: bool = False,
        **options: object,
    ) -> tuple[Array | None, ...]:
        """Return the gradients of sum <h, gradient> over all first-order gradients.

        The arguments are the inputs, gy, and one cotangent h for each input, None for zero, by
        position or by name ("h" and the name of the input). The result has one array for each
        input and one for gy; `wanted` may name "gy". The other parameters are those of `backward`.
        """
        phase, kept = self._with_saved("double_backward", saved)
        given = phase.arguments(inputs_gy_and_cotangents, options)
        return phase.run((*given, *kept), options, wanted, out, accumulate)

    def jvp(
        self,
        *inputs_and_tangents: object,
        saved: tuple[Array, ...] | None = None,
        out: Array | None = None,
        accumulate: bool = False,
        **options: object,
    ) -> Array:
        """Return the derivative of y in the direction of the tangents, one for each input or None.

        The name of a tangent is "t" followed by the name of the input.
        """
        phase, kept = self._with_saved("jvp", saved)
        outs = None if out is None else (*(None for _ in self.signature.inputs), out)
        given = phase.arguments(inputs_and_tangents, options)
        *_, dy = phase.run((*given, *kept), options, None, outs, accumulate)
        assert dy is not None
        return dy

    def output_shape(
        self,
        sizes: Mapping[str, int],
        arrays: Sequence[Shaped | None],
        options: Mapping[str, object],
        attention: bool = False,
    ) -> tuple[int, ...]:
        """Return the shape of y, or of alpha, from the shapes of the inputs."""
        phase = self._attention if attention else self._phases["forward"]
        assert phase is not None
        return phase.output_shape(sizes, arrays, options)

    def arguments(self, given: tuple[object, ...], options: Options) -> tuple[object, ...]:
        """Return the inputs by position; those given by name are removed from the options."""
        return self._phases["forward"].arguments(given, options)

    def checked(self, options: Mapping[str, object]) -> Options:
        """Return all options except row numbers, converted to Python types."""
        return self._phases["forward"].checked(options)

    def _usage(self) -> str:
        """Return the signature, one parameter a line."""
        lines = [f"    {parameter},\n" for parameter in self.__signature__.parameters.values()]
        if self.signature.options:
            lines.insert(len(self.signature.positional), "    *,\n")
        return f"{self.name}(\n{''.join(lines)}) -> {self.__signature__.return_annotation!r}"

    def _derivatives(self) -> str:
        """Describe the derivatives for the docstring."""
        inputs = self.signature.inputs
        names = ", ".join(self.signature.positional)
        y, gy, dgy, dy = (
            ", ".join(p + n for n in self.signature.results) for p in ("", "g", "dg", "d")
        )
        g, h, d, t = (", ".join(prefix + n for n in inputs) for prefix in ("g", "h", "d", "t"))
        return (
            "Derivatives\n-----------\n"
            f"{f'({y})' if ',' in y else y}, saved = {self.name}.forward({names}, ...)\n"
            f"{g} = {self.name}.backward({names}, {gy}, saved=None, wanted=None, ...)\n"
            f"{d}, {dgy} = {self.name}.double_backward({names}, {gy}, {h}, ...)\n"
            f"{dy} = {self.name}.jvp({names}, {t}, ...)\n\n"
            "All take the options above, and `out` and `accumulate` to write or add to arrays; "
            "arrays may be given by these names."
        )

    def _check_per_sample(self, per_sample: object) -> bool:
        caller = f"{self.name}.backward: per_sample"
        if not isinstance(per_sample, (bool, np.bool_)):
            raise TypeError(f"{caller}: expected True or False, got {per_sample!r}")
        if per_sample and self._by_sample is None:
            raise ValueError(f"{caller}: expected False, {self.name} has no such gradients")
        return bool(per_sample)

    def _with_saved(self, name: str, saved: object) -> tuple[Phase, tuple[object, ...]]:
        """Return the phase that takes stored intermediates, and these."""
        if saved is None or (isinstance(saved, tuple) and not saved):
            return self._phases[name], ()
        if self._keeping and isinstance(saved, tuple) and list(map(type, saved)) == [np.ndarray]:
            return self._keeping[name], saved
        found = f"tuple of {', '.join(map(kind_of, saved))}" if isinstance(saved, tuple) else None
        raise ValueError(
            f"{self.name}.{name}: saved: expected what {self.name}.forward returned, "
            f"got {found or type(saved).__name__}"
        )
