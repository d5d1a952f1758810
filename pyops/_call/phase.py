"""Phases of an operator: from the arguments of a call to the compiled kernel and its results.

All steps of a call use the state of `Phase`, so they are one class and one module.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from .. import _kernels
from .._schema import HALVES, Procedure, Shape, Signature, half_arrays, procedures
from ..graph import Graph
from .arguments import by_position
from .arrays import buffers_for, check_outputs, hand_over, plain
from .backends import find_backend
from .half import is_half
from .indices import Indices, check_rows, check_wanted
from .memory import new_array
from .plan import Kernel, Plan, Slot, check_options, make_plan, solved_shapes
from .threads import team

if TYPE_CHECKING:
    from .types import Array, Options, Shaped, Values

_MOST_PLANS = 1000
_PROPERTIES: Callable[[Array], tuple[object, ...]] = attrgetter("shape", "dtype.char")
"""Returns what a plan depends on of an array."""
_TRANSPOSED: Callable[[Array], Array] = attrgetter("T")
"""Returns the view of an array in C order that the kernel takes."""


def compiled(declaration: str, phase: str, half: str = "") -> dict[str, Kernel]:
    """Return the compiled variants of a phase, by the precision of the arithmetic."""
    if half and half not in HALVES:
        return {"r4": _only_on_devices}
    variants = {"r4": half} if half else {"r4": "r4", "r8": "r8"}
    return {
        v: getattr(getattr(_kernels, f"pyops_{declaration}_{name}"), f"{declaration}_{phase}")
        for v, name in variants.items()
    }


def _only_on_devices(*_: object) -> int:
    raise NotImplementedError(f"half: expected one of {HALVES} on the host, got another type")


class Phase:
    """forward, backward, double_backward, or jvp, which uses the kernel of double_backward.

    `special` selects another procedure with the arguments of the phase: by_sample is backward
    without the sum over the samples, attention returns the weights of forward. `keeping` selects
    the procedure that returns, or takes as its last argument, the intermediates of forward. `half`
    selects the procedures that read rows of half precision, see `reading`.
    """

    properties = staticmethod(_PROPERTIES)
    view = staticmethod(_TRANSPOSED)
    to_readable: Callable[[object], object] | None = None
    """Copies an argument that kernels which take any strides could not read."""

    def __init__(
        self,
        signature: Signature,
        operator: str,
        name: str,
        declaration: str,
        special: str = "",
        keeping: bool = False,
        half: str = "",
    ) -> None:
        self._made = (signature, operator, name, declaration, special, keeping)
        self.signature, self.name, self.half = signature, name, half
        self.caller = operator if name == "forward" else f"{operator}.{name}"
        inputs = signature.inputs.values()
        second = name in ("double_backward", "jvp")
        self.declaration = declaration
        self.kernel = (special or ("double_backward" if second else name)) + "_kept" * keeping
        self.interface = self._interface()

        self.slots = [Slot(i.name, i.name, i.forms, "input", not i.optional) for i in inputs]
        if name != "forward":
            for y, shape in signature.results.items():
                self.slots.append(Slot("g" + y, "g" + y, (shape,), "gy"))
        if second:
            tag = "t" if name == "jvp" else "h"
            self.slots += [Slot("h" + i.name, tag + i.name, i.forms, "cotangent") for i in inputs]
        if half:
            self.slots = [replace(s, half=s.name in self.rows) for s in self.slots]
        self.groups = 2 if second else 1
        results = signature.results
        self.seeds = len(results) if name in ("backward", "double_backward") else 0
        taken = [s for s in self.slots if self.seeds or s.role != "gy"]
        self._needed = tuple(s.label for s in taken if s.role == "gy")
        self._one_of = tuple(s.label for s in taken if s.role == "cotangent")
        graph = ["graph"] if signature.has_graph else []
        self._names = *graph, *(s.label for s in taken)
        self.named = frozenset(self._names)
        self._cotangents = {s.label: s.forms for s in taken if s.role != "input"}

        self.outputs: dict[str, Shape] = dict(results)
        """Outputs by their names in the kernel."""
        if name != "forward":
            tag = "d" if second else "g"
            self.outputs = {tag + i.name: i.shape for i in inputs}
        if second:
            self.outputs |= {"dg" + y: shape for y, shape in results.items()}
        if special == "attention":
            assert signature.attention is not None
            self.outputs = {"alpha": signature.attention}
        elif special:
            self.outputs |= {"g" + n: shape for n, shape in signature.by_sample.items()}

        self.takes_kept = keeping and name != "forward"
        if keeping:
            assert signature.keeps is not None
            if self.takes_kept:
                self.slots.append(Slot("kept", "saved", (signature.keeps,), "kept", True))
            else:
                self.outputs["kept"] = signature.keeps

        one = "y" if name == "forward" else "dgy" if name == "jvp" else None
        self.labels = {o: "out" if o == one else f"out: {o}" for o in self.outputs}

        self.no_memory = f"{self.caller}: not enough memory for the working arrays"
        self._variants = self._compiled()
        self._plans: dict[tuple[object, ...] | None, Plan] = {}
        self._reading: dict[str, Phase] = {}

    def reading(self, half: str) -> Phase:
        """Return this phase with kernels that read the arrays `rows` as 16-bit integers.

        These are the bits of numbers of half precision; `half` names their kind. All other arrays,
        and the results unless the kernels round, are float32.
        """
        found = self._reading.get(half)
        if found is None:
            found = self._reading[half] = self._with(half)
        return found

    def _with(self, half: str) -> Phase:
        return Phase(*self._made, half)

    def _compiled(self) -> dict[str, Kernel]:
        return compiled(self.declaration, self.kernel, self.half)

    def _interface(self) -> Procedure:
        return procedures(self.signature)[self.kernel]

    def readable(self, keywords: Iterable[inspect.Parameter]) -> inspect.Signature:
        """Return the signature of the phase: its arrays, the options, then these keywords."""
        return self.signature.readable(self._cotangents, self._needed, keywords)

    def arguments(self, given: tuple[object, ...], options: Options) -> tuple[object, ...]:
        """Return the arguments by position; those given by name are removed from the options."""
        if self.named.isdisjoint(options):
            return given
        return by_position(self.caller, self._names, given, options, self._needed, self._one_of)

    @property
    def parts(self) -> tuple[Phase, ...]:
        """The phases whose kernels this one runs."""
        return (self,)

    def shares(self, values: Values) -> Iterator[tuple[Phase, Values]]:
        """Yield each of these phases with its arguments by name, out of those of this one."""
        yield self, values

    def run(
        self,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None = None,
        out: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> tuple[Array | None, ...]:
        """Check a call, run its kernel and return its outputs."""
        if self.to_readable is not None:
            given = [*map(self.to_readable, given)]
        options, rows = self._without_rows(options) if self.signature.indexed else (options, {})
        plan = self._plan(given, options, wanted)
        if plan is None:
            backend = find_backend(given)
            assert backend is not None
            return backend.run(self, given, {**options, **rows}, wanted, out, accumulate)
        if out is not None or accumulate is not False:
            check_outputs(self.caller, self.labels, plan.outputs, plan.dtype, out, accumulate)
        return self._execute(plan, given, options, rows, out, accumulate)

    def _execute(
        self,
        plan: Plan,
        given: Sequence[object],
        options: Options,
        rows: Options,
        out: Sequence[Array | None] | None,
        accumulate: bool,
    ) -> tuple[Array | None, ...]:
        """Return the outputs of a call that has been checked."""
        inputs = self._inputs(given)
        buffers: list[Array | None]
        if out is None:
            dtype = plan.dtype
            buffers = [None if s is None else new_array(s, dtype) for s in plan.outputs]
        else:
            buffers = buffers_for(out, plan.outputs, plan.dtype, inputs, accumulate)
        if plan.fill is not None:
            for buffer in buffers:
                if buffer is not None:
                    buffer[...] = buffer + plan.fill if accumulate else plan.fill
            return tuple(buffers) if out is None else hand_over(buffers, out)
        outputs = [self.view(buffer) for buffer in buffers if buffer is not None]
        for arrays, places in zip((inputs, outputs), plan.flat, strict=True):
            for i in places:
                arrays[i] = arrays[i].T.reshape(-1)
        values = self._values(plan, given, rows, (team(), accumulate), inputs, outputs)
        if plan.kernel(*plan.order(values)):  # f2py's wrapper has raised interrupts
            raise MemoryError(self.no_memory)
        return tuple(buffers) if out is None else hand_over(buffers, out)

    def prepared(
        self,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None,
        threads: object,
        inputs: Sequence[object],
        outputs: Sequence[object],
    ) -> Values | None:
        """Return the arguments of the kernel by name; None if the outputs are constants.

        `threads`, `inputs` and `outputs` are stand-ins for the number of threads, the inputs that
        are given and the requested outputs.
        """
        options, rows = self._without_rows(options)
        plan = self._plan(given, options, wanted)
        if plan is None or plan.fill is not None:
            return None
        values = self._values(plan, given, rows, (threads, False), inputs, outputs)
        return dict(zip(plan.names, values, strict=True))

    def _without_rows(self, options: Options) -> tuple[Options, Options]:
        """Return the options, and those among them that are row numbers."""
        rows = {n: options[n] for n in self.signature.indexed if n in options}
        return {n: value for n, value in options.items() if n not in rows}, rows

    def _values(
        self,
        plan: Plan,
        given: Sequence[object],
        rows: Mapping[str, object],
        run: tuple[object, object],
        inputs: Sequence[object],
        outputs: Sequence[object],
    ) -> list[object]:
        """Return what `plan.names` lists; `run` is threads and accumulate."""
        indices: tuple[Indices, ...] = ()
        if plan.read or plan.indexed:
            graph = given[0]
            assert isinstance(graph, Graph)
            indices = graph._indices(plan.read)
            for name, length in plan.indexed.items():
                indices += (self._rows(name, rows.get(name), length, graph),)
        if plan.zeros:
            inputs = [*inputs, *(np.zeros(s, plan.zero_dtype).T for s in plan.zeros)]
        return [*plan.constants, *run, *indices, *inputs, *outputs]

    def _rows(self, name: str, rows: object, length: int | None, graph: Graph) -> Indices:
        """Return the row numbers of an option, 1-based; 0 for none.

        Those of the last call with the graph are not checked again.
        """
        option = self.signature.indexed[name]
        label = f"{self.caller}: {name}"
        check_wanted(label, option, rows, length is not None)
        if length is None:
            return np.empty(0, np.int64)
        key = "rows", name, str(option), str(length)
        last: tuple[Indices, Indices] | None = graph._copies.get(key)
        given = rows if isinstance(rows, np.ndarray) else None
        if (
            last is not None
            and given is not None
            and given.dtype == last[0].dtype
            and np.array_equal(given, last[0])
        ):
            return last[1]
        ends = graph.src, graph.dst, graph._ids
        counted: Indices = check_rows(label, option, rows, length, ends).astype(np.int64) + 1
        if given is not None:
            graph._copies[key] = np.array(given), counted
        return counted

    def _inputs(self, given: Sequence[object]) -> list[Array]:
        """Return the arrays as the kernel takes them."""
        return [
            (a if a.flags.carray and a.dtype.isnative else plain(a)).T
            for a in given
            if isinstance(a, np.ndarray)
        ]

    @functools.cached_property
    def absent(self) -> dict[str, None]:
        """Arrays, by name, that a device kernel receives as None unless given or requested."""
        signature = self.signature
        names = [tag + name for name in signature.inputs for tag in ("", "g", "h", "d")]
        return dict.fromkeys([*names, *(tag + y for y in signature.results for tag in ("g", "dg"))])

    def output_shape(
        self,
        sizes: Mapping[str, int],
        arrays: Sequence[Shaped | None],
        options: Mapping[str, object],
    ) -> tuple[int, ...]:
        """Return the shape of the first output from the shapes of the inputs."""
        return solved_shapes(
            self.signature,
            self.caller,
            sizes,
            self.slots,
            arrays,
            self.checked(options),
            self.outputs,
        )[next(iter(self.outputs))]

    def _plan(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> Plan | None:
        """Return the plan of a call; None if a backend runs it.

        Plans are cached by everything that they depend on.
        """
        key = self._key(given, options, wanted)
        try:
            plan = self._plans.get(key)
        except TypeError:  # an unhashable argument, refused below
            key, plan = None, None
        if plan is None:
            if (key is None or any(map(is_half, given))) and find_backend(given) is not None:
                return None
            self._refuse_unknown(options)
            plan = self._make_plan(given, options, wanted)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            if key is not None:
                self._plans[key] = plan
        return plan

    def _key(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> tuple[object, ...] | None:
        """Return the cache key of the plan; None if an argument has an unexpected type."""
        kinds: list[object] = []
        for argument in given:
            if type(argument) is np.ndarray:
                kinds.append(self.properties(argument))
            elif argument is None:
                kinds.append(None)
            elif isinstance(argument, Graph):
                kinds.append(argument._numbers or argument._sizes())
            else:
                return None
        if wanted is not None:
            if type(wanted) not in (tuple, list, set, frozenset):
                return None
            wanted = tuple(wanted)
        for name, value in options.items():
            kinds.append((name, type(value), value))
        return *kinds, wanted

    def _make_plan(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> Plan:
        graph, arrays = self._split(given)
        options = self.checked(options)
        return make_plan(
            self.signature,
            self.caller,
            self._variants,
            self.interface,
            graph,
            self.slots,
            arrays,
            options,
            self.outputs,
            self._wants(wanted, arrays),
        )

    @functools.cached_property
    def rows(self) -> frozenset[str]:
        """Names of the arrays that kernels read in half precision, too, or do not read."""
        return half_arrays(self.signature)

    @functools.cached_property
    def rounds(self) -> bool:
        """Whether kernels that read half precision store results in it."""
        return any(a.half and a.intent == "inout" for a in self.interface.arguments)

    def reads_halves(self, count: int, device: bool = False) -> list[bool]:
        """Return for each of so many arrays of a call whether it is among `rows`.

        Kernels of devices do not round; those that do on the host read float32 there.
        """
        if device and (self.rounds or not self.signature.half_on_devices):
            return [False] * count
        kept = [False] * self.takes_kept
        inputs = (count - len(kept) - self.seeds) // self.groups
        taken = [s for s in self.slots if s.role == "input"][:inputs]
        taken += [s for s in self.slots if s.role == "gy" and self.seeds]
        taken += [s for s in self.slots if s.role == "cotangent"][:inputs]
        return [*(s.name in self.rows for s in taken), *kept]

    def _split(self, given: Sequence[object]) -> tuple[Graph | None, list[object]]:
        """Return the graph, and one array or None for each slot."""
        rest = list(given)
        kept = [rest.pop()] if self.takes_kept else []
        graph: Graph | None = None
        if self.signature.has_graph and rest:
            first = rest.pop(0)
            if not isinstance(first, Graph):
                raise TypeError(
                    f"{self.caller}: graph: expected pyops.Graph, got {type(first).__name__}"
                )
            graph = first
        most = len(self.signature.inputs)
        count, odd = divmod(len(rest) - self.seeds, self.groups)
        if odd or not self.signature.required <= count <= most:
            count = len(given) - len(kept)
            raise TypeError(
                f"{self.caller}: expected arguments ({', '.join(self._names)}), got {count} of them"
            )
        padding = [None] * (most - count)
        arrays: list[object] = [*rest[:count], *padding]
        if self.name != "forward":
            arrays += rest[count : count + self.seeds] or [None] * len(self.signature.results)
        if self.groups == 2:
            arrays += [*rest[count + self.seeds :], *padding]
        return graph, [*arrays, *kept]

    def _complete(self, options: Mapping[str, object]) -> Options:
        """Return all options in the declared order, defaults included."""
        self._refuse_unknown(options)
        declared = self.signature.options
        for name, option in declared.items():
            if name not in options and option.default is inspect.Parameter.empty:
                raise TypeError(f"{self.caller}: {name}: expected this option, it has no default")
        return {name: options.get(name, option.default) for name, option in declared.items()}

    def _refuse_unknown(self, options: Mapping[str, object]) -> None:
        declared = self.signature.options
        for name in options.keys() - declared.keys():
            valid = ", ".join([*declared, *self.signature.indexed]) or "none"
            raise TypeError(
                f"{self.caller}: unexpected option {name!r}; options are: {valid}; "
                f"arguments are: {', '.join(self._names)}"
            )

    def checked(self, options: Mapping[str, object]) -> Options:
        """Return all options, converted to Python types."""
        return check_options(self.caller, self.signature.options, self._complete(options))

    def _wants(self, wanted: Collection[str] | None, arrays: Sequence[object]) -> tuple[str, ...]:
        """Return the outputs to compute; by default those of all inputs given."""
        if self.name == "forward":
            return tuple(self.outputs)
        if self.name == "jvp":
            return tuple(self.outputs)[-len(self.signature.results) :]
        held = dict(zip(self.signature.inputs, arrays, strict=False))
        if wanted is None:
            return tuple(name for name in self.outputs if held.get(name[1:], ()) is not None)
        if isinstance(wanted, str) or not isinstance(wanted, Collection):
            raise TypeError(
                f"{self.caller}: wanted: expected a collection of names, "
                f"got {type(wanted).__name__}"
            )
        valid = [name[1:] for name in self.outputs]
        for name in wanted:
            if name not in valid:
                raise ValueError(
                    f"{self.caller}: wanted: expected names among {', '.join(valid)}, got {name!r}"
                )
            if held.get(name, ()) is None:
                raise ValueError(
                    f"{self.caller}: wanted: expected names of inputs given, {name} is None"
                )
        return tuple(name for name in self.outputs if name[1:] in wanted)
