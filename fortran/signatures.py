"""The Fortran of the interfaces: entry procedures, and what the templates in nodes/ derive.

The declarations in pyops/ops are read as text, nothing of pyops is imported but its schema.
Most of the module is one class, which reads a declaration for all templates.
"""

from __future__ import annotations

import inspect
import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import _schema
from _schema import INDEX_ARRAYS, Signature, Size, parse_shape, solving_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OPS = Path(__file__).resolve().parents[1] / "pyops" / "ops"
PHASES = "forward", "backward", "double_backward", "by_sample"
GRAPH_SIZES = "num_src", "num_dst", "num_edges", "num_entries"
TYPES = {"int64": "integer(c_int64_t)", "int32": "integer(c_int32_t)", "float64": "real(c_double)"}


def attributes(argument: _schema.Argument) -> str:
    return "value" if argument.intent == "value" else f"intent({argument.intent})"


def entry(name: str, target: bool = False) -> str:
    """Return the head and the arguments' declarations of an entry procedure of a kernel.

    `name` is that of the operator followed by the phase. Outputs are targets if `target`.
    """
    operator, phase = _split(name)
    procedure = _schema.interfaces(operator, OPS)[phase]
    groups: dict[str, list[str]] = {}
    for a in procedure.arguments:
        is_target = a.is_array and (target or a.intent == "in")
        real = "real(xp)" if a.half else "real(wp)"
        kind = f"{TYPES.get(a.type, real)}, {attributes(a)}{', target' * is_target}"
        extents = f"({', '.join(a.extents)})" if a.is_array else ""
        groups.setdefault(kind, []).append(a.name + extents)
    found = [f"subroutine {name}( &", f"      {lines(procedure.names, ' ' * 6)}) &"]
    found += [f'      bind(c, name="pyops_{name}")']
    # Sizes that are extents would be optional in Python, and come last.
    extents = " ".join(extent for a in procedure.arguments for extent in a.extents)
    sizes = [name for name in procedure.names if name in words(extents)]
    found.append("    !f2py threadsafe")
    if sizes:
        found.append(f"    !f2py required :: {', '.join(sizes)}")
    found += [f"    {kind} :: &\n      {lines(names, ' ' * 6)}" for kind, names in groups.items()]
    return "\n".join(found)


def _split(name: str) -> tuple[str, str]:
    """Split the name of a procedure into operator and phase."""
    operators = (path.stem for path in OPS.glob("*.py"))
    operator = max((o for o in operators if name.startswith(f"{o}_")), key=len)
    return operator, name.removeprefix(f"{operator}_")


def bits(operator: str) -> str:
    """Return the constants of the bits that stand for an operator's arrays.

    `wanted`, `given` and `present` have a bit for each input, and `wanted` one for gy.
    """
    if operator == "elementwise":  # its `present` has bits for all operands
        operands = _schema.elementwise()["double_backward"].arguments
        names = [a.name for a in operands if (a.type, a.intent) == ("real", "in")]
        inputs = names.index("gy")
    else:
        names = [*Signature.read(OPS / f"{operator}.py").inputs, "gy"]
        inputs = len(names) - 1
    values = [f"{name}_bit = {place}" for place, name in enumerate(names)]
    values.append(f"input_bits = {2**inputs - 1}")
    return f"integer, parameter :: {lines(values, ' ' * 4)}"


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    attributes: str
    """value or intent(...)."""
    is_array: bool


@dataclass(frozen=True)
class Procedure:
    """A procedure with bind(c) for one precision."""

    name: str
    binding: str
    arguments: tuple[Argument, ...]

    @property
    def names(self) -> list[str]:
        return [argument.name for argument in self.arguments]


def procedures(operator: str) -> dict[str, Procedure]:
    """Return the procedures of a kernel by phase."""
    return {
        phase: Procedure(
            found.name,
            f"pyops_{found.name}_wp",
            tuple(
                Argument(a.name, TYPES.get(a.type, "real(wp)"), attributes(a), a.is_array)
                for a in found.arguments
            ),
        )
        for phase, found in _schema.interfaces(operator, OPS).items()
    }


def halves(operator: str) -> list[str]:
    """Return the variants of an operator that read rows of half precision."""
    return [v for v in _schema.variants(operator, OPS) if v in _schema.HALVES]


def phases(operator: str) -> list[str]:
    return [*_schema.interfaces(operator, OPS)]


@dataclass(frozen=True)
class Input:
    name: str
    rows: str
    """First dimension in Fortran, an expression in sizes."""
    columns: str
    optional: bool
    packed: bool
    """Whether it is passed in the second form of its declaration, a packed block."""


@dataclass(frozen=True)
class Option:
    name: str
    kind: str
    """size, choice, flag or real."""
    default: object
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 2**31 - 1


def _matrix(shape: Sequence[Size]) -> tuple[str, str]:
    """Return the rows and columns in Fortran of a NumPy array."""
    first, *rest = (size.text for size in shape)
    if not rest:
        return first, "1"
    return (rest[0] if len(rest) == 1 else "*".join(f"({a})" for a in reversed(rest))), first


def _option(option: _schema.Option) -> Option:
    kinds = {int: "size", bool: "flag", float: "real", str: "choice"}
    choices = option.choices if option.kind is str else ()
    default = None if option.default is inspect.Parameter.empty else option.default
    bounds = option.bounds
    return Option(option.name, kinds[option.kind], default, choices, bounds.least, bounds.most)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z_]\w*", text)


class Operator:
    """Operator with its inputs, options and kernels, as the templates in nodes/ use it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.signature = signature = Signature.read(OPS / f"{name}.py")
        self.where = signature.where
        self.equal = [(flag, *sizes) for flag, sizes in signature.equal.items()]
        self.at_most, self.also, self.one_of = signature.at_most, signature.also, signature.one_of
        self.by_sample = {n: _matrix(shape) for n, shape in signature.by_sample.items()}
        # The argument by which Fortran distinguishes the precisions cannot be optional.
        needed = self.one_of[:1]
        self.has_graph = signature.has_graph
        self.inputs = [
            Input(
                i.name,
                *_matrix(i.forms[-1]),
                i.optional and i.name not in needed,
                len(i.forms) > 1,
            )
            for i in signature.inputs.values()
        ]
        self.options = [_option(option) for option in signature.options.values()]
        self.row_numbers = {i.name: (i.option, i.choice) for i in signature.indexed.values()}
        """Options that are row indices, which graphs store here, by the choice they belong to."""
        self.output = _matrix(signature.output)
        self.kernels = {k: p for k, p in procedures(name).items() if k in PHASES}

    @property
    def phases(self) -> list[str]:
        return [*self.kernels]

    @property
    def names(self) -> list[str]:
        return [i.name for i in self.inputs]

    @cached_property
    def graph_sizes(self) -> list[str]:
        return list(GRAPH_SIZES) if self.has_graph else []

    @cached_property
    def sizes(self) -> list[str]:
        """All sizes but those of the graph; those that kernels take come first, in their order."""
        taken = [
            a.name
            for kernel in self.kernels.values()
            for a in kernel.arguments
            if a.type == "integer(c_int64_t)" and a.attributes == "value"
        ]
        more = [w for i in self.inputs for w in words(f"{i.rows} {i.columns}")]
        more += [n for sizes in self.where.values() for n in sizes]
        return [n for n in dict.fromkeys(taken + more) if n not in self.graph_sizes]

    def _of_kind(self, *kinds: str) -> list[str]:
        return [o.name for o in self.options if o.kind in kinds]

    @property
    def codes(self) -> list[str]:
        """Options that are choices or flags."""
        return self._of_kind("choice", "flag")

    @property
    def reals(self) -> list[str]:
        return self._of_kind("real")

    @property
    def free_sizes(self) -> list[str]:
        """Options that are sizes."""
        return self._of_kind("size")

    def kinds(self, kinds: Sequence[str]) -> list[dict[str, str]]:
        """All combinations of kinds that integer and logical options of a program may have."""
        names = self._of_kind("size", "flag")
        chosen = itertools.product(kinds, repeat=len(names))
        return [dict(zip(names, each, strict=True)) for each in chosen]

    def partials(self, name: str) -> list[str]:
        """Names of the gradient by an input."""
        names = [f"{self.name}_{name}", *([self.also[name]] if name in self.also else [])]
        return [f"get_partial_{n}" for n in names]

    def seen_sizes(self) -> list[tuple[str, str]]:
        """Elements of g that hold a size of the graph, and the length of an input that gives it."""
        places = {"num_src": ":2", "num_dst": "2", "num_edges": "3:", "num_entries": "3:"}
        found = []
        for number, i in enumerate(self.inputs, start=1):
            vector = i.columns == "1"
            shown = i.rows if vector else i.columns
            if self.has_graph and shown in places:
                length = f"lengths(1, {number})*" * vector + f"lengths(2, {number})"
                found.append((places[shown], length))
        return found

    @property
    def outgoing(self) -> bool:
        """Whether any kernel takes the outgoing rows."""
        names = {name for kernel in self.kernels.values() for name in kernel.names}
        return not names.isdisjoint(("out_offsets", "in_entries", "out_entries"))

    @property
    def indices(self) -> list[str]:
        """Sizes that `indices` of a node holds if it has no graph."""
        return [n for n in self.sizes if n in self.free_sizes or not n.startswith("num_")]

    @property
    def optional(self) -> int:
        """Optional inputs as bits."""
        return sum(1 << number for number, i in enumerate(self.inputs) if i.optional)

    def expression(self, text: str, array: str = "s") -> str:
        """Replaces sizes by elements of `array`, and those of the graph by elements of g."""

        def element(match: re.Match[str]) -> str:
            name = match[0]
            if name in self.graph_sizes:
                return f"g({self.graph_sizes.index(name) + 1})"
            return f"{array}({self.sizes.index(name) + 1})"

        return (
            re.sub(r"\d+", r"\g<0>_c_int64_t", text)
            if not words(text)
            else re.sub(r"[a-z_]\w*", element, text)
        )

    def branches(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Rules for all sizes: a condition on choices and inputs, and assignments in order."""
        groups: list[list[tuple[str, Mapping[str, Size], str]]] = []
        for o in self.options:
            code = f"codes({self.codes.index(o.name) + 1})" if o.name in self.codes else ""
            if o.kind == "flag" and {o.name, f"no {o.name}"} & self.where.keys():
                keys = {1: o.name, 0: f"no {o.name}"}
            elif set(o.choices) & self.where.keys():
                keys = dict(enumerate(o.choices, start=1))
            else:
                continue
            groups.append([(f"{code} == {n}", self.where.get(k, {}), "") for n, k in keys.items()])
        for number, i in enumerate(self.inputs, start=1):
            if i.optional and f"no {i.name}" in self.where:
                length = f"lengths(1, {number})"
                groups.append(
                    [
                        (f"{length} > 0", {}, i.name),
                        (f"{length} <= 0", self.where[f"no {i.name}"], ""),
                    ]
                )
        found = []
        for chosen in itertools.product(*groups):
            follows = {k: v for _, sizes, _ in chosen for k, v in sizes.items()}
            condition = " .and. ".join(text for text, _, _ in chosen)
            found.append((condition, self._solve(follows, {name for *_, name in chosen})))
        return found

    def _solve(self, follows: Mapping[str, Size], there: set[str]) -> list[tuple[str, str]]:
        """Return the assignments that solve for all sizes, of optional inputs only from `there`."""
        shapes, lengths = [], []
        for number, i in enumerate(self.inputs, start=1):
            if i.optional and i.name not in there:
                continue
            rows, columns = (f"lengths({axis}, {number})" for axis in (1, 2))
            shapes.append(parse_shape(f"{i.columns}, {i.rows}"))
            lengths.append((columns, f"{rows}*{columns}" if i.columns == "1" else rows))
        known = frozenset((*self.graph_sizes, *self.free_sizes))
        order = solving_order(tuple(shapes), tuple(follows.items()), known)
        missing = {*self.sizes} - known - {step.name for step in order}
        if missing:
            raise ValueError(f"{self.name}: sizes that do not follow: {missing}")
        found = []
        for size, name, axis in order:
            if name:  # others are compared after all are found
                length = None if axis is None else lengths[axis[0]][axis[1]]
                found.append((self.expression(name), self._solution(size.text, name, length)))
        return found

    def _solution(self, text: str, name: str, length: str | None) -> str:
        """Return the value of a size, rounded if it follows from the length of an axis."""
        if length is None:
            return self.expression(text)
        if text == name:
            return length
        base, one = (self.expression(re.sub(rf"\b{name}\b", value, text)) for value in "01")
        return (
            f"max(1_c_int64_t, ({length} - ({base}) &\n"
            f"        + upwards*({one} - ({base}) - 1)) &\n"
            f"        /max(1_c_int64_t, {one} - ({base})))"
        )

    @property
    def packed(self) -> int:
        return sum(1 << number for number, i in enumerate(self.inputs) if i.packed)

    def actual(self, name: str, given: dict[str, str]) -> str:
        """Returns an actual argument of a kernel; `given` holds those that depend on the caller."""
        if name in given:
            return given[name]
        if name in self.graph_sizes or name == "shared_edges" or name in INDEX_ARRAYS:
            return f"{given['graph']}%{name}"
        if name in self.row_numbers:
            return f"{given['graph']}%{name}"
        if name == "packed":
            return f"{self.packed}_c_int32_t"
        return given["settings"] + self.setting(name)

    def setting(self, name: str) -> str:
        """Element of the settings of a node that holds a size or an option."""
        for group in "sizes", "codes", "reals":
            names = getattr(self, group)
            if name in names:
                return f"{group}({names.index(name) + 1})"
        raise ValueError(f"{self.name}: no meaning for the argument {name}")

    def taken(self, option: str, choice: str) -> str:
        """Returns the condition that a choice was made."""
        (choices,) = (o.choices for o in self.options if o.name == option)
        return f"{self.setting(option)} == {choices.index(choice) + 1}"

    def call_arguments(self, phase: str) -> dict[str, str]:
        """Actual arguments from a `kernel_call`."""
        count = len(self.inputs)
        given = {"graph": "c%settings%graph", "settings": "c%settings%", "gy": "c%gy%at"}
        given |= {
            n: f"c%{n}" for n in ("threads", "accumulate", "wanted", "given", "present", "status")
        }
        given |= {"y": "c%outputs(1)%at", "dgy": f"c%outputs({count + 1})%at"}
        for number, name in enumerate(self.names, start=1):
            given[name] = f"c%inputs({number})%at"
            given["h" + name] = f"c%cotangents({number})%at"
            given["g" + name] = given["d" + name] = f"c%outputs({number})%at"
        return given

    def direct(
        self, number: int, by_column: str | None = None, copied: Iterable[str] = ()
    ) -> dict[str, str]:
        """Actual arguments of the gradient by one input alone.

        `by_column` is a size whose columns are computed one by one; `copied` inputs are in arrays
        of their own.
        """
        operands = ["this%left_operand%val", "this%right_operand%val"]
        operands += [f"this%further({k})%node%val" for k in range(1, len(self.inputs))]
        given = {"graph": "graph", "settings": "", "gy": "upstream_grad"}
        given |= {"threads": "1_c_int32_t", "accumulate": "0_c_int32_t", "present": "present"}
        given |= {"wanted": f"{1 << number - 1}_c_int32_t", "status": "status"}
        for place, (i, operand) in enumerate(zip(self.inputs, operands, strict=False), start=1):
            given[i.name] = i.name if i.optional or i.name in copied else operand
            given["g" + i.name] = "output" if place == number else "unused"
            if by_column is not None and i.columns == by_column:
                given[i.name] = f"{operand}(:, column)"
        if by_column is not None:
            given |= {
                "gy": "upstream_grad(:, column)",
                f"g{self.names[number - 1]}": "output(:, column)",
            }
            given[by_column] = "1_c_int64_t"
        return given


def lines(items: Iterable[object], indent: str = " " * 8, width: int = 92) -> str:
    """Breaks a list of arguments into continued lines."""
    rows, row = [], ""
    for item in items:
        longer = f"{row}, {item}" if row else str(item)
        if row and len(indent) + len(longer) > width:
            rows.append(row + ", &")
            longer = str(item)
        row = longer
    return f"\n{indent}".join([*rows, row])
