"""Declarations of operators: inputs and shapes, options and choices, derived sizes.

Declarations are read and shown by the same types, so this is one module.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

GRAPH_SIZES = "num_src", "num_dst", "num_edges", "num_entries"
COUNTS = {*GRAPH_SIZES, "num_samples", "num_types"}
"""Sizes that may be 0; all others are at least 1."""


class Size:
    """Length of an axis: an expression linear in each of its names."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._code = compile(self.text, "<shape>", "eval")
        self.ordered = tuple(dict.fromkeys(re.findall(r"[a-z_]\w*", self.text)))
        self.names = frozenset(self.ordered)

    def value(self, known: Mapping[str, int]) -> int:
        length: int = eval(self._code, {"__builtins__": {}}, dict(known))
        return length

    def solve(self, name: str, length: int, known: Mapping[str, int]) -> int | None:
        """Return the value of an unknown size for an axis of this length, None if there is none."""
        base, slope = 0, 1
        if self.text != name:
            base = self.value({**known, name: 0})
            slope = self.value({**known, name: 1}) - base
        value = (length - base) // slope
        least = 0 if name in COUNTS else 1
        return value if value * slope == length - base and value >= least else None


Shape = tuple[Size, ...]
ANY: Shape = (Size("..."),)
"""A shape of whatever rank."""


def parse_shape(text: str) -> Shape:
    return ANY if text == "..." else tuple(Size(axis) for axis in text.split(","))


def parse_forms(text: str) -> tuple[Shape, ...]:
    """Return the shapes that an array may have, distinguished by rank."""
    return tuple(parse_shape(form) for form in text.split("|"))


def show_shape(shape: Iterable[Size], known: Mapping[str, int]) -> str:
    """Format a shape for an error message, with the known sizes substituted."""
    axes = []
    for size in shape:
        if size.names <= known.keys():
            number = str(size.value(known))
            axes.append(number if size.text == number else f"{size.text}={number}")
        else:
            axes.append(size.text)
    return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"


@dataclass(frozen=True)
class Input:
    name: str
    forms: tuple[Shape, ...]
    optional: bool

    @property
    def shape(self) -> Shape:
        """First of its forms."""
        return self.forms[0]


@dataclass(frozen=True)
class Between:
    """Bounds of a size, if they differ from those of any axis length."""

    least: int = 1
    most: int = 2**31 - 1


@dataclass(frozen=True)
class Indexed:
    """Option that is an array of row numbers, used for one choice of another option."""

    name: str
    length: str
    option: str
    choice: str
    reverses: bool = False
    """Whether edges are paired with their reverses, so the pairing must be symmetric."""


@dataclass(frozen=True)
class Option:
    name: str
    kind: type | str
    default: object
    choices: tuple[str | bool, ...] = ()
    bounds: Between = Between()

    @property
    def is_size(self) -> bool:
        return self.kind is int


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: str
    default: Any
    """`inspect.Parameter.empty` if there is none."""
    keyword_only: bool


class Signature:
    """Declaration of an operator, parsed from a function's annotations.

    Arrays are ``Annotated[Array, "axis, axis"]``, options that are sizes ``int`` (or, with bounds,
    ``Annotated[int, Between(...)]``), numbers ``float``, flags ``bool``, options with choices
    ``Literal``. ``Annotated[Indices, length, "option=choice"]`` are row numbers for one choice of
    an option, followed by "reversed" if they pair edges with their reverses. ``"axis, axis |
    axis*axis"`` is an array that may have one form or another. Several results are a ``tuple`` of
    arrays, each with its name after the shape.

    `where` gives, for a choice, the sizes that follow from it, likewise for "flag" and "no flag",
    and for "no input" if that input is absent; `equal`, for a flag, two sizes that must be equal if
    it is set; `at_most`, for a size, another one that it may not exceed; `by_sample` the shapes of
    gradients that are also available per sample; `also` further names of the gradients in Fortran;
    `attention` the shape of the weights that the call returns on request; `keeps` the shape of the
    intermediates that forward stores for the derivatives; `one_of` the optional inputs of which one
    must be given.

    The others are about the kernels. `sizes` gives the order of their sizes, unless it is that of
    the axes; `reads` the index arrays that they take, for each phase, see `interface`; `unread`
    those, by prefixes of their names, that they take but do not read: for "no input" if that input
    is absent, for "no shared" if no edge is shared, for "" in any case. `half` are the inputs that
    they read in half precision, too, as they then do the cotangents of the results and of these
    inputs; those of devices only if `half_on_devices`. A `linear` operator has derivatives that
    depend on no input.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[Parameter],
        returns: str,
        *,
        where: Mapping[str, Mapping[str, str]] | None = None,
        equal: Mapping[str, tuple[str, str]] | None = None,
        at_most: Mapping[str, str] | None = None,
        by_sample: Mapping[str, str] | None = None,
        also: Mapping[str, str] | None = None,
        attention: str | None = None,
        keeps: str | None = None,
        one_of: Sequence[str] = (),
        sizes: str = "",
        reads: Mapping[str, str] | None = None,
        unread: Mapping[str, tuple[str, ...]] | None = None,
        half: Sequence[str] = (),
        half_on_devices: bool = True,
        linear: bool = False,
    ) -> None:
        self.name = name
        self.inputs: dict[str, Input] = {}
        self.options: dict[str, Option] = {}
        self.indexed: dict[str, Indexed] = {}
        self.has_graph = False
        for parameter in parameters:
            hint = _Hint(parameter.annotation)
            if hint.kind == "Graph":
                self.has_graph = True
            elif hint.kind == "Indices":
                length, condition, *more = hint.metadata
                option, choice = condition.split("=")
                self.indexed[parameter.name] = Indexed(
                    parameter.name, length, option, choice, more == ["reversed"]
                )
            elif parameter.keyword_only:
                self.options[parameter.name] = _option(parameter, hint)
            else:
                forms = parse_forms(hint.metadata[0])
                self.inputs[parameter.name] = Input(
                    parameter.name, forms, parameter.default is None
                )
        result = _Hint(returns)
        parts = [part.metadata for part in result.parts] or [[result.metadata[0], "y"]]
        self.results = {label: parse_shape(axes) for axes, label in parts}
        self.output = next(iter(self.results.values()))
        self.where = {
            choice: {name: Size(text) for name, text in sizes.items()}
            for choice, sizes in (where or {}).items()
        }
        self.equal = dict(equal or {})
        self.at_most = dict(at_most or {})
        self.also = dict(also or {})
        self.by_sample = {name: parse_shape(text) for name, text in (by_sample or {}).items()}
        self.one_of = tuple(one_of)
        self.attention = parse_shape(attention) if attention else None
        self.keeps = parse_shape(keeps) if keeps else None
        self._sizes = tuple(sizes.split())
        self.reads = dict(reads or {})
        self.unread = dict(unread or {})
        self.half = tuple(half)
        self.half_on_devices = half_on_devices
        self.linear = linear

    @classmethod
    def of(cls, function: Callable[..., Any], **keywords: Any) -> Signature:
        """Return the signature that a function with annotations as text declares."""
        hints = function.__annotations__
        parameters = [
            Parameter(p.name, hints[p.name], p.default, p.kind is p.KEYWORD_ONLY)
            for p in inspect.signature(function).parameters.values()
        ]
        return cls(function.__name__, parameters, hints["return"], **keywords)

    @classmethod
    def read(cls, path: Path) -> Signature:
        """Return the signature declared by the function that a file is named for."""
        (function,) = (
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef) and node.name == path.stem
        )
        keywords = {
            str(keyword.arg): ast.literal_eval(keyword.value)
            for decorator in function.decorator_list
            if isinstance(decorator, ast.Call)
            for keyword in decorator.keywords
        }
        own = function.args
        empty = inspect.Parameter.empty
        missing = [None] * (len(own.args) - len(own.defaults))
        pairs = [
            *((a, d, False) for a, d in zip(own.args, [*missing, *own.defaults], strict=True)),
            *((a, d, True) for a, d in zip(own.kwonlyargs, own.kw_defaults, strict=True)),
        ]
        parameters = [
            Parameter(
                argument.arg,
                ast.unparse(argument.annotation) if argument.annotation else "",
                ast.literal_eval(default) if default else empty,
                keyword_only,
            )
            for argument, default, keyword_only in pairs
        ]
        assert function.returns is not None
        return cls(path.stem, parameters, ast.unparse(function.returns), **keywords)

    @functools.cached_property
    def sizes(self) -> tuple[str, ...]:
        """Sizes that kernels take beside those of the graph: lengths of axes in their order."""
        if self._sizes:
            return self._sizes
        shapes = [*(i.shape for i in self.inputs.values()), *self.results.values()]
        found = [name for shape in shapes for size in shape for name in size.ordered]
        found += [option.name for option in self.options.values() if option.is_size]
        graph = GRAPH_SIZES if self.has_graph else ()
        return tuple(name for name in dict.fromkeys(found) if name not in graph)

    def follows(self, options: Mapping[str, object], absent: Iterable[str]) -> Mapping[str, Size]:
        """Return the sizes that follow from choices, flags, and absent inputs."""
        found = {}
        for name, value in options.items():
            key = (name if value else f"no {name}") if isinstance(value, bool) else value
            found.update(self.where.get(key, {}) if isinstance(key, str) else {})
        for name in absent:
            found.update(self.where.get(f"no {name}", {}))
        return found

    @property
    def positional(self) -> tuple[str, ...]:
        return ("graph", *self.inputs) if self.has_graph else tuple(self.inputs)

    @functools.cached_property
    def required(self) -> int:
        """Number of inputs that must be given, at least one."""
        return sum(not i.optional for i in self.inputs.values()) or 1

    def readable(
        self,
        cotangents: Mapping[str, tuple[Shape, ...]] | None = None,
        needed: Collection[str] = (),
        keywords: Iterable[inspect.Parameter] = (),
    ) -> inspect.Signature:
        """Return the call signature for `help`: shapes for arrays, choices for options.

        That of a phase has arrays after the inputs, of which `needed` have no default unless an
        input before them has one, and keywords after the options.
        """
        kind = inspect.Parameter
        shown = [kind(n, kind.POSITIONAL_OR_KEYWORD) for n in self.positional if n == "graph"]
        arrays = {i.name: i.forms for i in self.inputs.values()} | dict(cotangents or {})
        required = {i.name for i in self.inputs.values() if not i.optional}.union(needed)
        default: object = kind.empty
        for name, forms in arrays.items():
            default = default if name in required else None
            annotation = _text(*forms)
            shown.append(
                kind(name, kind.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
            )
        for o in self.options.values():
            hint = Literal.__getitem__(o.choices) if o.kind is str else o.kind
            shown.append(kind(o.name, kind.KEYWORD_ONLY, default=o.default, annotation=hint))
        shown += [
            kind(i.name, kind.KEYWORD_ONLY, default=None, annotation=i.length)
            for i in self.indexed.values()
        ]
        if cotangents is not None:
            return inspect.Signature([*shown, *keywords])
        returns = [_text(shape) for shape in self.results.values()]
        text = returns[0] if len(returns) == 1 else f"({'), ('.join(returns)})"
        return inspect.Signature(shown, return_annotation=text)


def _text(*forms: Shape) -> str:
    return " | ".join(", ".join(size.text for size in shape) for shape in forms)


class _Hint:
    """Annotation: its type, and the metadata of Annotated or the choices of Literal."""

    def __init__(self, annotation: str) -> None:
        self.kind = ""
        self.metadata: list[Any] = []
        self.parts: list[_Hint] = []
        self._read(ast.parse(annotation, mode="eval").body)

    def _read(self, node: ast.expr) -> None:
        if isinstance(node, ast.BinOp) and not isinstance(node.left, ast.BinOp):  # ... | None
            self._read(node.left)
        elif isinstance(node, ast.Subscript):
            outer = ast.unparse(node.value)
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if outer == "Annotated":
                self.kind = ast.unparse(items[0])
                self.metadata = [_metadata(item) for item in items[1:]]
            elif outer == "Literal":
                self.kind, self.metadata = outer, [ast.literal_eval(item) for item in items]
            else:
                self.kind, self.parts = outer, [_Hint(ast.unparse(item)) for item in items]
        else:
            self.kind = ast.unparse(node)


def _metadata(node: ast.expr) -> object:
    if isinstance(node, ast.Call):
        return Between(*(ast.literal_eval(argument) for argument in node.args))
    return ast.literal_eval(node)


def _option(parameter: Parameter, hint: _Hint) -> Option:
    name, default = parameter.name, parameter.default
    if hint.kind == "Literal":
        return Option(name, str, default, tuple(hint.metadata))
    if hint.kind == "bool":
        return Option(name, bool, default, (default, not default))
    kinds: dict[str, type] = {"int": int, "float": float}
    bounds = (*hint.metadata, Between())[0]
    return Option(name, kinds.get(hint.kind, hint.kind), default, bounds=bounds)
