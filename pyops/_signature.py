"""Declarations of operators: inputs and shapes, options and choices, derived sizes."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

from .graph import Graph

_COUNTS = {"num_src", "num_dst", "num_edges", "num_entries", "num_samples", "num_types"}
"""Sizes that may be 0; all others are at least 1."""


class Size:
    """Length of an axis: an expression linear in each of its names."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._code = compile(self.text, "<shape>", "eval")
        self.names = frozenset(self._code.co_names)

    def value(self, known: Mapping[str, int]) -> int:
        length: int = eval(self._code, {"__builtins__": {}}, dict(known))
        return length

    def solve(self, length: int, known: Mapping[str, int]) -> tuple[str, int | None]:
        """Return the one unknown name, and its value for an axis of this length or None."""
        (name,) = self.names - known.keys()
        base = self.value({**known, name: 0})
        slope = self.value({**known, name: 1}) - base
        value = (length - base) // slope
        least = 0 if name in _COUNTS else 1
        return name, value if value * slope == length - base and value >= least else None


Shape = tuple[Size, ...]
ANY: Shape = (Size("..."),)
"""Any shape of any rank."""


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
    turned: bool = False
    """Whether edges are paired with their reverses, so the pairing must be symmetric."""


@dataclass(frozen=True)
class Option:
    name: str
    kind: type
    default: Any
    choices: tuple[str | bool, ...] = ()
    bounds: Between = Between()

    @property
    def is_size(self) -> bool:
        return self.kind is int


class Signature:
    """Declaration of an operator, parsed from a function's annotations.

    Arrays are ``Annotated[Array, "axis, axis"]``, options that are sizes ``int`` (or, with bounds,
    ``Annotated[int, Between(...)]``), numbers ``float``, flags ``bool``, options with choices
    ``Literal``. ``Annotated[Indices, length, "option=choice"]`` are row numbers for one choice of
    an option, followed by "turned" if they pair edges with their reverses. ``"axis, axis |
    axis*axis"`` is an array that may have one form or another. Several results are a ``tuple`` of
    arrays, each with its name after the shape.

    `where` gives, for a choice, the sizes that follow from it, likewise for "flag" and "no flag",
    and for "no input" if that input is absent; `at_most`, for a size, another one that it may not
    exceed; `by_sample` the shapes of gradients that are also available per sample; `also` further
    names of the gradients in Fortran; `attention` the shape of the weights that the call returns
    on request; `keeps` the shape of the intermediates that forward stores for the derivatives;
    `one_of` the optional inputs of which one must be given. `unread` lists the index arrays, by
    prefixes of their names, that kernels do not read: for "no input" if that input is absent, for
    "no shared" if no edge is shared, for "" in any case.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        where: Mapping[str, Mapping[str, str]] | None = None,
        at_most: Mapping[str, str] | None = None,
        by_sample: Mapping[str, str] | None = None,
        also: Mapping[str, str] | None = None,
        attention: str | None = None,
        keeps: str | None = None,
        one_of: Iterable[str] = (),
        unread: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        self.inputs: dict[str, Input] = {}
        self.options: dict[str, Option] = {}
        self.indexed: dict[str, Indexed] = {}
        self.has_graph = False
        for name, parameter in parameters.items():
            if hints[name] is Graph:
                self.has_graph = True
            elif parameter.kind is parameter.KEYWORD_ONLY and _is_indexed(hints[name]):
                length, condition, *more = _annotated(hints[name]).__metadata__
                option, choice = condition.split("=")
                self.indexed[name] = Indexed(name, length, option, choice, more == ["turned"])
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self.options[name] = _option(name, hints[name], parameter.default)
            else:
                forms = parse_forms(_axes(hints[name]))
                self.inputs[name] = Input(name, forms, parameter.default is None)
        self.results = _results(hints["return"])
        self.output = next(iter(self.results.values()))
        self.where = {
            choice: {name: Size(text) for name, text in sizes.items()}
            for choice, sizes in (where or {}).items()
        }
        self.at_most = dict(at_most or {})
        self.also = dict(also or {})
        self.by_sample = {name: parse_shape(text) for name, text in (by_sample or {}).items()}
        self.one_of = tuple(one_of)
        self.unread = dict(unread or {})
        self.attention = parse_shape(attention) if attention else None
        self.keeps = parse_shape(keeps) if keeps else None

    def follows(self, options: Mapping[str, Any], absent: Iterable[str]) -> Mapping[str, Size]:
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

    def readable(self) -> inspect.Signature:
        """Return the call signature for `help`: shapes for arrays, choices for options."""
        kind = inspect.Parameter
        shown = [kind(n, kind.POSITIONAL_OR_KEYWORD) for n in self.positional if n == "graph"]
        for i in self.inputs.values():
            default = None if i.optional else kind.empty
            shown.append(
                kind(
                    i.name, kind.POSITIONAL_OR_KEYWORD, default=default, annotation=_text(*i.forms)
                )
            )
        for o in self.options.values():
            hint = Literal.__getitem__(o.choices) if o.kind is str else o.kind
            shown.append(kind(o.name, kind.KEYWORD_ONLY, default=o.default, annotation=hint))
        shown += [
            kind(i.name, kind.KEYWORD_ONLY, default=None, annotation=i.length)
            for i in self.indexed.values()
        ]
        returns = [_text(shape) for shape in self.results.values()]
        text = returns[0] if len(returns) == 1 else f"({'), ('.join(returns)})"
        return inspect.Signature(shown, return_annotation=text)


def _text(*forms: Shape) -> str:
    return " | ".join(", ".join(size.text for size in shape) for shape in forms)


def _axes(hint: Any) -> str:
    """Return the shape in Annotated[Array, shape], also inside an optional."""
    return str(_annotated(hint).__metadata__[0])


def _results(hint: Any) -> dict[str, Shape]:
    """Return the shapes of the results by name; a single result is y."""
    if typing.get_origin(hint) is tuple:
        parts = [part.__metadata__ for part in typing.get_args(hint)]
        return {name: parse_shape(axes) for axes, name in parts}
    return {"y": parse_shape(_axes(hint))}


def _is_indexed(hint: Any) -> bool:
    """Return whether a hint is Annotated[..., length, condition] | None."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else ()
    return any(typing.get_origin(part) is Annotated for part in parts)


def _annotated(hint: Any) -> Any:
    if typing.get_origin(hint) in (Union, types.UnionType):
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if typing.get_origin(hint) is not Annotated:
        raise TypeError(f"expected Annotated[Array, shape], got {hint}")
    return hint


def _option(name: str, hint: Any, default: Any) -> Option:
    if typing.get_origin(hint) is Literal:
        return Option(name, str, default, typing.get_args(hint))
    if hint is bool:
        return Option(name, bool, default, (default, not default))
    if typing.get_origin(hint) is Annotated:
        return Option(name, hint.__origin__, default, bounds=hint.__metadata__[0])
    return Option(name, hint, default)
