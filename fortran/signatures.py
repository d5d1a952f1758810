"""Derive the Fortran interface from the declarations in pyops/ops and the compiled kernels.

Imports nothing of pyops: the declarations are read as text, the signatures of kernels from the
generated sources.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OPS = Path(__file__).parents[1] / "pyops" / "ops"
PHASES = "forward", "backward", "double_backward", "by_sample"
GRAPH_SIZES = "num_src", "num_dst", "num_edges", "num_entries"
_INDICES = re.compile(r"(in|out)_(offsets|nodes|edges)|(id|in|out)_entries|id_offsets|in_order")


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    attributes: str
    """value or intent(...)."""
    is_array: bool


@dataclass(frozen=True)
class Procedure:
    """A procedure with bind(c)."""

    name: str
    binding: str
    arguments: tuple[Argument, ...]

    @property
    def names(self) -> list[str]:
        return [argument.name for argument in self.arguments]


def _split(text: str) -> list[str]:
    """Splits at the commas outside parentheses."""
    return [
        part.strip() for part in re.findall(r"(?:[^,()]|\([^()]*(?:\([^()]*\)[^()]*)*\))+", text)
    ]


def procedures(path: str) -> dict[str, Procedure]:
    """Reads the procedures with a binding name, for both kinds, of a source expanded for real32."""
    text = re.sub(r"&\s*\n\s*&?", " ", Path(path).read_text())
    other = text.replace("c_float", "c_double").replace('_r4"', '_r8"')
    return _bound(text, "r4") | _bound(other, "r8")


def _bound(text: str, precision: str) -> dict[str, Procedure]:
    found = {}
    head = re.compile(
        r"^ *(?:pure )?subroutine (\w+)\(([^)]*)\)"
        r"\s*bind\(c,\s*name=\"(\w+)\"\)(.*?)end subroutine",
        re.DOTALL | re.MULTILINE,
    )
    for match in head.finditer(text):
        name, arguments, binding, body = match.groups()
        declared = {}
        for line in body.split("\n"):
            kind, colons, names = line.partition("::")
            if not colons or not re.search(r"\b(value|intent)\b", kind):
                continue
            type_, *attributes = _split(kind)
            attributes = [a for a in attributes if a == "value" or a.startswith("intent")]
            for item in _split(names.partition("!")[0]):
                plain = item.partition("(")[0].strip()
                declared[plain] = Argument(plain, type_, ", ".join(attributes), "(" in item)
        order = [argument.strip() for argument in arguments.split(",")]
        name = f"{name}_{precision}"
        found[name] = Procedure(name, binding, tuple(declared[a] for a in order))
    return found


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
    """size, choice, flag or number."""
    default: object
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 2**31 - 1


def _matrix(shape: str) -> tuple[str, str]:
    """Returns the rows and columns in Fortran of a NumPy array."""
    axes = [axis.strip() for axis in shape.split(",")]
    if len(axes) == 1:
        return axes[0], "1"
    rest = axes[1:]
    return (rest[0] if len(rest) == 1 else "*".join(f"({a})" for a in reversed(rest))), axes[0]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z_]\w*", text)


class Operator:
    """Operator with its inputs, options and kernels, as the templates in nodes/ use it."""

    def __init__(self, name: str, kernels: str) -> None:
        self.name = name
        tree = ast.parse((OPS / f"{name}.py").read_text())
        (function,) = (
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name
        )
        keywords = {
            k.arg: ast.literal_eval(k.value)
            for d in function.decorator_list
            if isinstance(d, ast.Call)
            for k in d.keywords
        }
        self.where: dict[str, dict[str, str]] = keywords.get("where", {})
        self.at_most: dict[str, str] = keywords.get("at_most", {})
        self.by_sample: dict[str, str] = keywords.get("by_sample", {})
        self.also: dict[str, str] = keywords.get("also", {})
        self.one_of: tuple[str, ...] = keywords.get("one_of", ())
        arguments = function.args
        # The argument by which Fortran distinguishes the precisions cannot be optional.
        self.needed = self.one_of[:1]
        self.has_graph = any(ast.unparse(a.annotation) == "Graph" for a in arguments.args)
        optional = len(arguments.args) - len(arguments.defaults)
        self.inputs = [
            self._input(a, number >= optional)
            for number, a in enumerate(arguments.args)
            if ast.unparse(a.annotation) != "Graph"
        ]
        self.options = []
        self.row_numbers: dict[str, tuple[str, str]] = {}
        """Options that are row indices, which graphs store here, by the choice they belong to."""
        for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            text = ast.unparse(a.annotation)
            if text.startswith("Annotated[Indices"):
                option, choice = text.split("'")[3].split("=")
                self.row_numbers[a.arg] = option, choice
            else:
                self.options.append(self._option(a, d))
        self.output = _matrix(self._shape(function.returns))
        known = procedures(kernels)
        self.kernels = {
            (p, v): known[f"{name}_{p}_{v}"]
            for p in PHASES
            for v in ("r4", "r8")
            if f"{name}_{p}_{v}" in known
        }

    @staticmethod
    def _shape(annotation: ast.expr) -> str:
        (text,) = (n.value for n in ast.walk(annotation) if isinstance(n, ast.Constant) and n.value)
        return text

    def _input(self, argument: ast.arg, optional: bool) -> Input:
        forms = self._shape(argument.annotation).split("|")
        optional = optional and argument.arg not in self.needed
        return Input(argument.arg, *_matrix(forms[-1]), optional, len(forms) > 1)

    @staticmethod
    def _option(argument: ast.arg, default: ast.expr | None) -> Option:
        text = ast.unparse(argument.annotation)
        value = None if default is None else ast.literal_eval(default)
        choices = tuple(re.findall(r"'(\w+)'", text)) if text.startswith("Literal") else ()
        bounds = re.fullmatch(r"Annotated\[int, Between\((\d+), (\d+)\)\]", text)
        if bounds:
            return Option(argument.arg, "size", value, (), int(bounds[1]), int(bounds[2]))
        kinds = {"int": "size", "bool": "flag", "float": "number"}
        return Option(argument.arg, "choice" if choices else kinds[text], value, choices)

    @property
    def phases(self) -> list[str]:
        return list(dict.fromkeys(phase for phase, _ in self.kernels))

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
            for (_, v), kernel in self.kernels.items()
            if v == "r4"
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
    def numbers(self) -> list[str]:
        return self._of_kind("number")

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

    @staticmethod
    def matrix(shape: str) -> tuple[str, str]:
        return _matrix(shape)

    def expression(self, text: str, array: str = "s") -> str:
        """Replaces sizes by elements of `array`, and those of the graph by elements of g."""

        def place(match: re.Match[str]) -> str:
            name = match[0]
            if name in self.graph_sizes:
                return f"g({self.graph_sizes.index(name) + 1})"
            return f"{array}({self.sizes.index(name) + 1})"

        return (
            re.sub(r"\d+", r"\g<0>_c_int64_t", text)
            if not words(text)
            else re.sub(r"[a-z_]\w*", place, text)
        )

    def follows(self, values: Iterable[object], absent: Iterable[str]) -> dict[str, str]:
        """Sizes that follow from choices and flags, in their order, and from absent inputs."""
        options = [o for o in self.options if o.kind in ("choice", "flag")]
        keys = [
            str(value) if o.choices else o.name if value else f"no {o.name}"
            for o, value in zip(options, values, strict=True)
        ]
        keys += [f"no {name}" for name in absent]
        return {k: v for key in keys for k, v in self.where.get(key, {}).items()}

    def branches(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Rules for all sizes: a condition on choices and inputs, and assignments in order."""
        groups: list[list[tuple[str, dict[str, str], str]]] = []
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

    def _solve(self, follows: dict[str, str], there: set[str]) -> list[tuple[str, str]]:
        known = {*self.graph_sizes, *self.free_sizes}
        steps = []
        axes = []
        for number, i in enumerate(self.inputs, start=1):
            if i.optional and i.name not in there:
                continue
            axes.append((i.columns, f"lengths(2, {number})"))
            whole = f"lengths(1, {number})*lengths(2, {number})"
            axes.append((i.rows, whole if i.columns == "1" else f"lengths(1, {number})"))
        axes = [(text, length) for text, length in axes if words(text)]

        def settle() -> None:
            for name, text in follows.items():
                if name not in known and known.issuperset(words(text)):
                    steps.append((self.expression(name), self.expression(text)))
                    known.add(name)

        settle()
        while not known.issuperset(self.sizes):
            before = len(known)
            for plain in True, False:
                for text, length in axes:
                    unknown = set(words(text)) - known
                    if len(unknown) != 1 or plain != (text in unknown):
                        continue
                    (name,) = unknown
                    if plain:
                        steps.append((self.expression(name), length))
                    else:
                        base, one = (
                            self.expression(re.sub(rf"\b{name}\b", value, text)) for value in "01"
                        )
                        steps.append(
                            (
                                self.expression(name),
                                f"max(1_c_int64_t, ({length} - ({base}) &\n"
                                f"        + upwards*({one} - ({base}) - 1)) &\n"
                                f"        /max(1_c_int64_t, {one} - ({base})))",
                            )
                        )
                    known.add(name)
                    settle()
                if len(known) > before:
                    break
            if len(known) == before:
                missing = set(self.sizes) - known
                raise ValueError(f"{self.name}: sizes that do not follow: {missing}")
        return steps

    def bodies(self, variant: str) -> Iterable[Procedure]:
        """Kernels of a variant, to write interfaces of."""
        return [kernel for (_, v), kernel in self.kernels.items() if v == variant]

    @property
    def packed(self) -> int:
        return sum(1 << number for number, i in enumerate(self.inputs) if i.packed)

    def actual(self, name: str, given: dict[str, str]) -> str:
        """Returns an actual argument of a kernel; `given` holds those that depend on the caller."""
        if name in given:
            return given[name]
        if name in self.graph_sizes or name == "shared_edges" or _INDICES.fullmatch(name):
            return f"{given['graph']}%{name}"
        if name in self.row_numbers:
            return f"{given['graph']}%{name}"
        if name == "packed":
            return f"{self.packed}_c_int32_t"
        return given["is"] + self.place(name)

    def place(self, name: str) -> str:
        """Element of the settings of a node that holds a size or an option."""
        for group in "sizes", "codes", "numbers":
            names = getattr(self, group)
            if name in names:
                return f"{group}({names.index(name) + 1})"
        raise ValueError(f"{self.name}: no meaning for the argument {name}")

    def taken(self, option: str, choice: str) -> str:
        """Returns the condition that a choice was made."""
        (choices,) = (o.choices for o in self.options if o.name == option)
        return f"{self.place(option)} == {choices.index(choice) + 1}"

    def recorded(self, phase: str) -> dict[str, str]:
        """Actual arguments from the record of a call."""
        count = len(self.inputs)
        given = {"graph": "c%is%graph", "is": "c%is%", "gy": "c%gy%at"}
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
        self, number: int, apart: str | None = None, copied: Iterable[str] = ()
    ) -> dict[str, str]:
        """Actual arguments of the gradient by one input alone.

        `apart` is a size processed by columns; `copied` inputs are in arrays of their own.
        """
        operands = ["this%left_operand%val", "this%right_operand%val"]
        operands += [f"this%further({k})%node%val" for k in range(1, len(self.inputs))]
        given = {"graph": "graph", "is": "", "gy": "upstream_grad"}
        given |= {"threads": "1_c_int32_t", "accumulate": "0_c_int32_t", "present": "present"}
        given |= {"wanted": f"{1 << number - 1}_c_int32_t", "status": "status"}
        for place, (i, operand) in enumerate(zip(self.inputs, operands, strict=False), start=1):
            given[i.name] = i.name if i.optional or i.name in copied else operand
            given["g" + i.name] = "output" if place == number else "nothing"
            if apart is not None and i.columns == apart:
                given[i.name] = f"{operand}(:, column)"
        if apart is not None:
            given |= {
                "gy": "upstream_grad(:, column)",
                f"g{self.names[number - 1]}": "output(:, column)",
            }
            given[apart] = "1_c_int64_t"
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
