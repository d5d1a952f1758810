"""Table of the calls of programs: what each takes, and how a machine evaluates it.

A machine has a few primitives, on arrays of one library; all other calls are composed of these.
The table refers to all compositions, so this is one module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from .._call.operator import OPERATORS, Operator
from ..ops.elementwise import ARITY

Scalar: TypeAlias = "str | bool | int | float | tuple[float, ...] | None"
"""Value of an option."""
Options: TypeAlias = Mapping[str, Scalar]
GRAPH: Final = "graph"
REAL: Final = "real"
INDEX: Final = "index"
ROWS: Final = "rows"
"""Kinds of values; of an input of kind `ROWS`, real or index, only the number of rows is read."""
Value = TypeVar("Value")
Held = TypeVar("Held")
MODES = "replace", "complete"
"""Whether self loops are replaced, or added where a node has none."""


class Machine(Protocol[Value]):
    """Primitives on the real values of one library; graphs and indices are its own objects."""

    def operator(
        self,
        name: str,
        graph: object,
        inputs: Mapping[str, Value | None],
        options: Mapping[str, object],
    ) -> Value: ...
    def shape(self, x: Value) -> tuple[int, ...]: ...
    def number(self, number: float) -> Value: ...
    def constant(self, values: tuple[float, ...]) -> Value: ...
    def full(self, shape: tuple[int, ...], number: float) -> Value: ...
    def detached(self, x: Value) -> Value: ...
    def compare(self, name: str, x1: Value, x2: Value) -> Value: ...
    def add_bias(self, product: Value, bias: Value) -> Value:
        """Return the sum of a product, which nothing else uses, and a vector."""

    def matmul(self, a: Value, b: Value, transposed: bool) -> Value: ...
    def layer_norm(
        self, x: Value, weight: Value | None, bias: Value | None, eps: float
    ) -> Value: ...
    def transpose(self, x: Value) -> Value: ...
    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value: ...
    def concat(self, parts: Sequence[Value], axis: int) -> Value: ...
    def slice(self, x: Value, axis: int, start: int, stop: int) -> Value: ...
    def gather(self, x: Value, index: object) -> Value: ...
    def scatter_sum(self, x: Value, index: object, rows: int | None) -> Value: ...
    def in_degrees(self, graph: object) -> Value: ...
    def rearranged(self, name: str, graph: object, index: object, options: Options) -> object:
        """Return another graph."""

    def ends(self, name: str, graph: object) -> object:
        """Return the sources or the destinations of a graph."""

    def graph_of(self, src: object, dst: object, num_src: int, num_dst: int) -> object: ...


@dataclass(frozen=True)
class Given(Generic[Held]):
    """Arguments of a step."""

    graph: object
    reals: Mapping[str, Held | None]
    indices: Mapping[str, object]
    rows: Mapping[str, int]
    options: Options


class _Evaluation(Protocol):
    def __call__(self, machine: Machine[Value], given: Given[Value], /) -> Value: ...


class _GraphEvaluation(Protocol):
    def __call__(self, machine: Machine[Value], given: Given[Value], /) -> object: ...


Check: TypeAlias = Callable[[Scalar], bool]


@dataclass(frozen=True)
class Option:
    """Option of a call."""

    expected: str
    check: Check
    optional: bool = False


@dataclass(frozen=True)
class Call:
    """Call of a program."""

    inputs: Mapping[str, str]
    """Kind of each input."""
    options: Mapping[str, Option] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    """Inputs that may be absent."""
    graph: bool = False
    result: str = REAL
    evaluate: _Evaluation | None = None
    make: _GraphEvaluation | None = None
    """For results that are graphs and indices."""
    operator: Operator | None = None
    several: bool = False
    """Whether the inputs are "x1", "x2" and so on."""

    def check(
        self,
        label: str,
        graph: str,
        inputs: Mapping[str, str],
        options: Options,
        kinds: Mapping[str, str],
    ) -> None:
        """Refuse inputs and options that the call does not take."""
        if bool(graph) != self.graph or (graph and kinds[graph] != GRAPH):
            expected = "expected the name of a graph" if self.graph else "expected none"
            raise ValueError(f"{label}: graph: {expected}, got {graph!r:.40}")
        known = self.inputs
        if self.several:
            known = {f"x{place}": REAL for place in range(1, len(inputs) + 1)}
        numbers = options.keys() & self.inputs.keys()  # in place of operands
        missing = known.keys() - inputs.keys() - self.optional - numbers
        none = self.several and not inputs
        if missing or inputs.keys() - known.keys() or numbers & inputs.keys() or none:
            raise ValueError(f"{label}: inputs: expected {', '.join(known)}, "
                             f"got {', '.join(inputs)!r:.80}")  # fmt: skip
        for name, value in inputs.items():
            kind = known[name]
            if kinds[value] not in ((REAL, INDEX) if kind == ROWS else (kind,)):
                raise ValueError(f"{label}: {name}: expected a value of kind {kind}, got "
                                 f"{value!r:.40} of kind {kinds[value]}")  # fmt: skip
        self._check_options(label, options)
        if self.operator is not None:
            _check_operator(label, self.operator, inputs, options)

    def _check_options(self, label: str, options: Options) -> None:
        for name, value in options.items():
            option = self.options.get(name)
            if option is None:
                expected = ", ".join(self.options) or "none"
                raise ValueError(f"{label}: options: expected {expected}, got {name!r:.40}")
            if not option.check(value):
                raise ValueError(f"{label}: {name}: expected {option.expected}, got {value!r:.40}")
        for name, option in self.options.items():
            if not option.optional and name not in options:
                raise ValueError(f"{label}: {name}: expected {option.expected}, got none")


def _check_operator(
    label: str, operator: Operator, inputs: Mapping[str, str], options: Options
) -> None:
    signature = operator.signature
    if signature.one_of and not inputs.keys() & {*signature.one_of}:
        raise ValueError(f"{label}: expected {' or '.join(signature.one_of)}, got neither")
    try:
        checked = operator.checked({n: v for n, v in options.items() if n not in signature.inputs})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{label}: {str(error).partition(': ')[2]}") from None
    for indexed in signature.indexed.values():
        if (checked[indexed.option] == indexed.choice) != (indexed.name in inputs):
            raise ValueError(f"{label}: {indexed.name}: expected it if {indexed.option} is "
                             f"{indexed.choice!r}, and only then")  # fmt: skip


def is_number(value: Scalar) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Scalar, least: int = 0) -> bool:
    return type(value) is int and least <= value < 2**31


def _is_shape(value: Scalar) -> bool:
    if not isinstance(value, tuple) or not 1 <= len(value) <= 2:
        return False
    whole = all(type(n) is int and -1 <= n < 2**31 for n in value)
    return whole and value.count(-1) <= 1


def _are_numbers(value: Scalar) -> bool:
    return isinstance(value, tuple) and all(map(is_number, value))


def _taken(_: Scalar) -> bool:
    return True


NUMBER = Option("a number", is_number)
AXIS = Option("0, 1 or -1", lambda value: type(value) is int and value in (0, 1, -1))
COUNT = Option("an integer from 0", _is_integer)
OPTIONAL_COUNT = Option("an integer from 0 or null", lambda v: v is None or _is_integer(v), True)
RELATIONS = Option("a positive integer", lambda value: _is_integer(value, 1))
SHAPE = Option("one or two lengths, of which one may be -1", _is_shape)
NUMBERS = Option("a list of numbers", _are_numbers)
MODE = Option(" or ".join(MODES), lambda value: value in MODES)


def _of_operator(operator: Operator) -> Call:
    """Return the call of an operator, by its declaration."""
    signature = operator.signature
    names, numbers = signature.inputs, {}
    if ARITY.get(operator.name) == 2:
        numbers = {name: Option("a number", is_number, True) for name in names}

    def evaluate(machine: Machine[Value], given: Given[Value]) -> Value:
        inputs = {name: given.reals.get(name) for name in names}
        options: dict[str, object] = {**given.options, **given.indices}
        for name in numbers:
            number = options.pop(name, None)
            if isinstance(number, (int, float)):
                inputs[name] = machine.number(number)
        return machine.operator(operator.name, given.graph, inputs, options)

    return Call(
        {**dict.fromkeys(names, REAL), **dict.fromkeys(signature.indexed, INDEX)},
        {**{name: Option("", _taken, True) for name in signature.options}, **numbers},
        frozenset([*(name for name, one in names.items() if one.optional), *signature.indexed]),
        signature.has_graph,
        evaluate=evaluate,
        operator=operator,
    )


def _required(given: Given[Value], name: str) -> Value:
    found = given.reals[name]
    assert found is not None
    return found


def _expect_axes(machine: Machine[Value], x: Value, name: str, *expected: int) -> tuple[int, ...]:
    shape = machine.shape(x)
    if len(shape) not in expected:
        kind = " or ".join(("a number", "a vector", "a matrix")[axes] for axes in expected)
        raise ValueError(f"{name}: expected {kind}, got shape {shape}")
    return shape


def _axis(machine: Machine[Value], x: Value, given: Given[Value], name: str = "x") -> int:
    axes = len(_expect_axes(machine, x, name, 1, 2))
    axis = given.options["axis"]
    assert isinstance(axis, int)
    if axis >= axes:
        raise ValueError(f"axis: expected less than {axes}, got {axis}")
    return axis % axes


def binary(machine: Machine[Value], name: str, x1: Value, x2: Value) -> Value:
    """Return the value of a function of two operands."""
    return machine.operator(name, None, {"x1": x1, "x2": x2}, {})


def unary(machine: Machine[Value], name: str, x: Value, **options: Scalar) -> Value:
    """Return the value of a function of one operand, or of a reduction."""
    return machine.operator(name, None, {"x": x}, options)


def _linear(machine: Machine[Value], given: Given[Value]) -> Value:
    x, weight, bias = (given.reals.get(name) for name in ("x", "weight", "bias"))
    assert x is not None
    assert weight is not None
    width = _expect_axes(machine, x, "x", 2)[1]
    columns = _expect_axes(machine, weight, "weight", 2)[1]
    if columns != width:
        raise ValueError(f"x: expected {columns} columns like weight, got {width}")
    y = machine.matmul(x, weight, True)
    if bias is None:
        return y
    if machine.shape(bias) != machine.shape(y)[1:]:
        raise ValueError(f"bias: expected shape {machine.shape(y)[1:]}, got {machine.shape(bias)}")
    return machine.add_bias(y, bias)


def _matmul(machine: Machine[Value], given: Given[Value]) -> Value:
    a, b = _required(given, "a"), _required(given, "b")
    width = _expect_axes(machine, a, "a", 2)[1]
    rows = _expect_axes(machine, b, "b", 2)[0]
    if rows != width:
        raise ValueError(f"b: expected {width} rows, as a has columns, got {rows}")
    return machine.matmul(a, b, False)


def _transpose(machine: Machine[Value], given: Given[Value]) -> Value:
    x = _required(given, "x")
    _expect_axes(machine, x, "x", 2)
    return machine.transpose(x)


def _layer_norm(machine: Machine[Value], given: Given[Value]) -> Value:
    x, weight, bias = (given.reals.get(name) for name in ("x", "weight", "bias"))
    assert x is not None
    width = _expect_axes(machine, x, "x", 2)[1]
    for name, part in ("weight", weight), ("bias", bias):
        if part is not None and machine.shape(part) != (width,):
            raise ValueError(f"{name}: expected shape ({width},), got {machine.shape(part)}")
    eps = given.options["eps"]
    assert isinstance(eps, (int, float))
    return machine.layer_norm(x, weight, bias, eps)


def layer_norm(
    machine: Machine[Value], x: Value, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    """Return the layer norm as a composition of operators."""
    mean = unary(machine, "mean", x, axis=-1, keepdims=True)
    centred = binary(machine, "subtract", x, mean)
    squares = binary(machine, "multiply", centred, centred)
    variance = unary(machine, "mean", squares, axis=-1, keepdims=True)
    shifted = binary(machine, "add", variance, machine.number(eps))
    y = binary(machine, "divide", centred, unary(machine, "sqrt", shifted))
    y = y if weight is None else binary(machine, "multiply", y, weight)
    return y if bias is None else binary(machine, "add", y, bias)


def _shifted(machine: Machine[Value], given: Given[Value]) -> tuple[Value, int]:
    x = _required(given, "x")
    axis = _axis(machine, x, given)
    if machine.shape(x)[axis] == 0:
        return x, axis
    largest = unary(machine, "max", machine.detached(x), axis=axis, keepdims=True)
    return binary(machine, "subtract", x, largest), axis


def _softmax(machine: Machine[Value], given: Given[Value]) -> Value:
    x, axis = _shifted(machine, given)
    powers = unary(machine, "exp", x)
    return binary(
        machine, "divide", powers, unary(machine, "sum", powers, axis=axis, keepdims=True)
    )


def _log_softmax(machine: Machine[Value], given: Given[Value]) -> Value:
    x, axis = _shifted(machine, given)
    total = unary(machine, "sum", unary(machine, "exp", x), axis=axis, keepdims=True)
    return binary(machine, "subtract", x, unary(machine, "log", total))


def _concat(machine: Machine[Value], given: Given[Value]) -> Value:
    parts = [_required(given, f"x{place}") for place in range(1, len(given.reals) + 1)]
    axis = _axis(machine, parts[0], given, "x1")
    first = machine.shape(parts[0])
    for place, part in enumerate(parts, start=1):
        shape = machine.shape(part)
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != axis
        ):
            raise ValueError(f"x{place}: expected a shape like {first} apart from axis {axis}, "
                             f"got {shape}")  # fmt: skip
    return machine.concat(parts, axis)


def _slice(machine: Machine[Value], given: Given[Value]) -> Value:
    x = _required(given, "x")
    axis = _axis(machine, x, given)
    length = machine.shape(x)[axis]
    start, stop = given.options["start"], given.options.get("stop")
    assert isinstance(start, int)
    stop = length if stop is None else stop
    assert isinstance(stop, int)
    if not start <= stop <= length:
        raise ValueError(f"start, stop: expected 0 to {length} in order, got {start} and {stop}")
    return machine.slice(x, axis, start, stop)


def _reshape(machine: Machine[Value], given: Given[Value]) -> Value:
    x, shape = _required(given, "x"), given.options["shape"]
    assert isinstance(shape, tuple)
    held, lengths = machine.shape(x), [int(n) for n in shape]
    count, known = math.prod(held), math.prod(n for n in lengths if n != -1)
    rest = count // known if known else 0
    found = tuple(rest if n == -1 else n for n in lengths)
    if math.prod(found) != count:
        raise ValueError(f"shape: expected as many elements as x of shape {held}, got {shape}")
    return machine.reshape(x, found)


def _gather(machine: Machine[Value], given: Given[Value]) -> Value:
    x = _required(given, "x")
    _expect_axes(machine, x, "x", 1, 2)
    return machine.gather(x, given.indices["index"])


def _scatter_sum(machine: Machine[Value], given: Given[Value]) -> Value:
    x = _required(given, "x")
    _expect_axes(machine, x, "x", 1, 2)
    return machine.scatter_sum(x, given.indices["index"], given.rows.get("like"))


def _full(machine: Machine[Value], given: Given[Value]) -> Value:
    columns, value = given.options.get("columns"), given.options["value"]
    assert isinstance(value, (int, float))
    rows = given.rows["like"]
    return machine.full((rows, columns) if isinstance(columns, int) else (rows,), value)


def _constant(machine: Machine[Value], given: Given[Value]) -> Value:
    values = given.options["values"]
    assert isinstance(values, tuple)
    return machine.constant(values)


def _in_degrees(machine: Machine[Value], given: Given[Value]) -> Value:
    return machine.in_degrees(given.graph)


def _comparison(name: str) -> Call:
    def evaluate(machine: Machine[Value], given: Given[Value]) -> Value:
        operands = []
        for operand in ("x1", "x2"):
            value, number = given.reals.get(operand), given.options.get(operand)
            if isinstance(number, (int, float)):
                value = machine.number(number)
            assert value is not None
            operands.append(value)
        return machine.compare(name, *operands)

    number = Option("a number", is_number, True)
    return Call({"x1": REAL, "x2": REAL}, {"x1": number, "x2": number}, evaluate=evaluate)


def _rearrangement(name: str, inputs: Mapping[str, str], **options: Option) -> Call:
    def make(machine: Machine[Value], given: Given[Value]) -> object:
        return machine.rearranged(name, given.graph, given.indices.get("index"), given.options)

    return Call(inputs, options, graph=True, result=GRAPH, make=make)


def _ends(name: str) -> Call:
    def make(machine: Machine[Value], given: Given[Value]) -> object:
        return machine.ends(name, given.graph)

    return Call({}, graph=True, result=INDEX, make=make)


def _graph_of(machine: Machine[Value], given: Given[Value]) -> object:
    ends = given.indices["src"], given.indices["dst"]
    return machine.graph_of(*ends, given.rows["num_src"], given.rows["num_dst"])


_X, _BIAS = {"x": REAL}, {"x": REAL, "weight": REAL, "bias": REAL}
CALLS: dict[str, Call] = {
    **{name: _of_operator(op) for name, op in OPERATORS.items() if name not in ("clip", "where")},
    "linear": Call(_BIAS, optional=frozenset({"bias"}), evaluate=_linear),
    "matmul": Call({"a": REAL, "b": REAL}, evaluate=_matmul),
    "transpose": Call(_X, evaluate=_transpose),
    "layer_norm": Call(_BIAS, {"eps": NUMBER}, frozenset({"weight", "bias"}), evaluate=_layer_norm),
    "softmax": Call(_X, {"axis": AXIS}, evaluate=_softmax),
    "log_softmax": Call(_X, {"axis": AXIS}, evaluate=_log_softmax),
    "concat": Call({}, {"axis": AXIS}, evaluate=_concat, several=True),
    "slice": Call(_X, {"axis": AXIS, "start": COUNT, "stop": OPTIONAL_COUNT}, evaluate=_slice),
    "reshape": Call(_X, {"shape": SHAPE}, evaluate=_reshape),
    "gather": Call({"x": REAL, "index": INDEX}, evaluate=_gather),
    "scatter_sum": Call(
        {"x": REAL, "index": INDEX, "like": ROWS},
        optional=frozenset({"like"}),
        evaluate=_scatter_sum,
    ),
    "full": Call({"like": ROWS}, {"value": NUMBER, "columns": OPTIONAL_COUNT}, evaluate=_full),
    "constant": Call({}, {"values": NUMBERS}, evaluate=_constant),
    "in_degrees": Call({}, graph=True, evaluate=_in_degrees),
    "less": _comparison("less"),
    "equal": _comparison("equal"),
    "add_self_loops": _rearrangement("add_self_loops", {}, mode=MODE),
    "remove_self_loops": _rearrangement("remove_self_loops", {}),
    "reverse": _rearrangement("reverse", {}),
    "per_edge": _rearrangement("per_edge", {}),
    "by_relation": _rearrangement("by_relation", {"index": INDEX}, relations=RELATIONS),
    "graph_of": Call(
        {"src": INDEX, "dst": INDEX, "num_src": ROWS, "num_dst": ROWS},
        result=GRAPH,
        make=_graph_of,
    ),
    "sources": _ends("sources"),
    "destinations": _ends("destinations"),
}
