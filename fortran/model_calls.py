"""The calls that programs of model files make, as the templates in nodes/models/ use them.

Operators are read from their declarations, functions from their table; only what has neither is
listed here. A call has arguments, options and the Fortran expression of its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import _functions
import signatures

LARGEST = 2**31 - 1
REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "maxval", "min": "minval"}
SORTS = "real", "matrix", "index", "any", "size", "integer", "choice", "flag", "number"
SORTS += "axis", "shape", "numbers"
"""Of arguments: real values, matrices, index vectors, or any whose rows count; then of options."""
AS_FIRST, LARGER, AS_SHAPE, REDUCED = 0, -1, -2, -3
"""Ranks of results beside 1 and 2: as the first argument, as the larger one, by options."""


@dataclass(frozen=True)
class Argument:
    name: str
    sort: str = "real"
    optional: bool = False
    default: str | float | bool | None = None
    """Of options; None if there is none."""
    least: int = 0
    most: int = LARGEST
    choices: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[int, float, str]:
        """The default as the components of an option in Fortran: integer, real, word."""
        given = self.default
        if isinstance(given, str):
            return 0, 0.0, given
        return int(given or 0), float(given or 0), ""


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Argument, ...]
    options: tuple[Argument, ...] = ()
    graph: bool = False
    result: str = "real"
    rank: int = AS_FIRST
    text: str = ""
    """Expression of a real result of array operands x(i)%node and options o(i), if it is one."""
    numbers: bool = False
    """Whether an option of the same name may replace an argument."""
    variadic: bool = False
    paired: tuple[int, str] = (0, "")
    """Option and choice with which the last argument, an index vector, is given, and only then."""
    missing: tuple[tuple[int, str], ...] = ()
    """Arguments that Fortran requires, and their columns, where a file may omit them."""


def _read(place: int, option: Argument) -> str:
    """Return the expression of an option of an operator."""
    given = f"o({place})"
    return {
        "size": f"int({given}%integers(1), c_int32_t)",
        "flag": f"{given}%integers(1) /= 0",
        "choice": f"{given}%word",
        "number": f"{given}%number",
    }[option.sort]


def _operator(name: str) -> Call:
    op = signatures.Operator(name)
    sorts = {"real": "number"}
    options = tuple(
        Argument(
            o.name,
            sorts.get(o.kind, o.kind),
            o.default is not None,
            o.default,
            o.least,
            o.most,
            o.choices,
        )
        for o in op.options
    )
    declared = op.signature.inputs
    indexed = tuple(Argument(name, "index", True) for name in op.row_numbers)
    paired = [
        (1 + [o.name for o in options].index(option), choice)
        for option, choice in op.row_numbers.values()
    ]
    words = ["graph"] * op.has_graph
    words += [f"{i.name}=x({k})%node" for k, i in enumerate(op.inputs, start=1)]
    words += [f"{o.name}={_read(k, o)}" for k, o in enumerate(options, start=1)]
    return Call(
        name,
        (*(Argument(i.name, optional=declared[i.name].optional) for i in op.inputs), *indexed),
        options,
        graph=op.has_graph,
        rank=min(2, len(op.signature.output)),
        text=f"{name}( &\n        {signatures.lines([*words[:-1], words[-1] + ')'])}",
        paired=paired[0] if paired else (0, ""),
        missing=tuple(
            (k, i.columns)
            for k, i in enumerate(op.inputs, start=1)
            if declared[i.name].optional and not i.optional
        ),
    )


def _function(function: _functions.Function) -> Call:
    name = function.name
    if function.arity == 2:
        return _binary(name)
    option, default, _ = function.option
    text = f"{name}(x(1)%node)"
    options: tuple[Argument, ...] = ()
    if option:
        options = (Argument(option, "number", True, default),)
        text = f"{name}(x(1)%node, real(o(1)%number, wp))"
    return Call(name, (Argument("x"),), options, text=text)


def _binary(name: str) -> Call:
    """Return a function of two arguments, of which one may be a number."""
    arguments = tuple(Argument(n, optional=True) for n in ("x1", "x2"))
    options = tuple(Argument(n, "number", True) for n in ("x1", "x2"))
    return Call(name, arguments, options, rank=LARGER, numbers=True)


def _reduction(name: str) -> Call:
    options = Argument("axis", "axis", True), Argument("keepdims", "flag", True, False)
    return Call(name, (Argument("x"),), options, rank=REDUCED)


_X = Argument("x")
_INDEX = Argument("index", "index")
_AXIS = Argument("axis", "axis")
_LIKE = Argument("like", "any")
_DIM = "o(1)%integers(1)"

GENERIC = (
    Call(
        "linear",
        (Argument("x", "matrix"), Argument("weight", "matrix"), Argument("bias", optional=True)),
        text="linear(x(1)%node, x(2)%node, x(3)%node)",
    ),
    Call(
        "matmul",
        (Argument("a", "matrix"), Argument("b", "matrix")),
        text="matmul(x(2)%node, x(1)%node)",
    ),
    Call("transpose", (Argument("x", "matrix"),), text="transpose(x(1)%node)"),
    Call(
        "layer_norm",
        (Argument("x", "matrix"), *(Argument(n, optional=True) for n in ("weight", "bias"))),
        (Argument("eps", "number"),),
        text="layer_norm(x(1)%node, x(2)%node, x(3)%node, real(o(1)%number, wp))",
    ),
    *(
        Call(name, (_X,), (_AXIS,), text=f"{name}(x(1)%node, {_DIM})")
        for name in ("softmax", "log_softmax")
    ),
    Call("concat", (_X,), (_AXIS,), variadic=True, text=f"concat(x, {_DIM})"),
    Call(
        "slice",
        (_X,),
        (
            _AXIS,
            Argument("start", "size"),
            Argument("stop", "size", True, LARGEST),
        ),
    ),
    Call("reshape", (_X,), (Argument("shape", "shape"),), rank=AS_SHAPE),
    Call("gather", (_X, _INDEX)),
    Call("scatter_sum", (_X, _INDEX, Argument("like", "any", True))),
    Call(
        "full",
        (_LIKE,),
        (Argument("value", "number"), Argument("columns", "size", True, 0)),
        rank=AS_SHAPE,
    ),
    Call("constant", (), (Argument("values", "numbers"),), rank=1),
    Call("in_degrees", (), graph=True, rank=1),
    _binary("less"),
    _binary("equal"),
    Call(
        "add_self_loops",
        (),
        (Argument("mode", "choice", choices=("replace", "complete")),),
        graph=True,
        result="graph",
    ),
    *(
        Call(name, (), graph=True, result="graph")
        for name in ("remove_self_loops", "reverse", "per_edge")
    ),
    Call(
        "by_relation",
        (_INDEX,),
        (Argument("relations", "size", least=1),),
        graph=True,
        result="graph",
    ),
    Call(
        "graph_of",
        (
            Argument("src", "index"),
            Argument("dst", "index"),
            Argument("num_src", "any"),
            Argument("num_dst", "any"),
        ),
        result="graph",
    ),
    *(Call(name, (), graph=True, result="index", rank=1) for name in ("sources", "destinations")),
)


class Table:
    """All calls, and the arrays by which Fortran looks them up."""

    def __init__(self, operators: str) -> None:
        names = [name for name in operators.split(",") if name != "elementwise"]
        self.calls = [
            *map(_operator, names),
            *map(_function, _functions.PUBLIC),
            *map(_reduction, REDUCTIONS),
            *GENERIC,
        ]

    @cached_property
    def words(self) -> list[Argument]:
        """Arguments, then options of each call in order."""
        return [a for call in self.calls for a in (*call.arguments, *call.options)]

    @cached_property
    def starts(self) -> list[tuple[int, int]]:
        """Places before the arguments and before the options of each call, and the end."""
        found, place = [], 0
        for call in self.calls:
            found.append((place, place + len(call.arguments)))
            place += len(call.arguments) + len(call.options)
        return [*found, (place, place)]

    @cached_property
    def choices(self) -> list[str]:
        return [choice for word in self.words for choice in word.choices]

    @cached_property
    def choice_starts(self) -> list[int]:
        found = [0]
        for word in self.words:
            found.append(found[-1] + len(word.choices))
        return found

    def code(self, name: str) -> int:
        return 1 + [call.name for call in self.calls].index(name)
