"""Programs of model files: inputs, steps and outputs, checked when they are read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from ._calls import CALLS, GRAPH, INDEX, REAL, Scalar
from ._container import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

VERSION = 1
Kind: TypeAlias = Literal["graph", "real", "index"]
_KINDS: tuple[Kind, ...] = (GRAPH, REAL, INDEX)
_KEYS = "version", "name", "hyperparameters", "inputs", "parameters", "tied", "steps", "outputs"


@dataclass(frozen=True)
class Input:
    """Input of a model.

    Parameters
    ----------
    name : str
    kind : {"graph", "real", "index"}
        A graph, a float array, or a vector of integers.
    columns : int or None
        Width of a matrix; None for a vector.
    num_src, num_dst : str
        Inputs that have a row for each source and each destination of the graph, "" if there are
        none. They give the sizes of a graph that is given as pairs of nodes.
    """

    name: str
    kind: Kind
    columns: int | None = None
    num_src: str = ""
    num_dst: str = ""


@dataclass(frozen=True)
class Step:
    """Call with one result, which later steps may use by its name."""

    call: str
    result: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Scalar] = field(default_factory=dict)
    graph: str = ""

    @property
    def names(self) -> list[str]:
        """Names that the step uses."""
        return [*([self.graph] if self.graph else []), *self.inputs.values()]


@dataclass(frozen=True)
class Program:
    """Straight-line program of a model."""

    name: str
    hyperparameters: Mapping[str, Scalar]
    inputs: tuple[Input, ...]
    parameters: tuple[str, ...]
    tied: Mapping[str, str]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]

    def text(self) -> str:
        """Return the program as JSON."""
        return json.dumps(
            {
                "version": VERSION,
                "name": self.name,
                "hyperparameters": dict(self.hyperparameters),
                "inputs": [_without_defaults(vars(given)) for given in self.inputs],
                "parameters": list(self.parameters),
                "tied": dict(self.tied),
                "steps": [_without_defaults(vars(step)) for step in self.steps],
                "outputs": list(self.outputs),
            },
            separators=(",", ":"),
            allow_nan=False,
        )


def _without_defaults(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an input or a step as they are written; real inputs keep `columns`."""
    kept = fields.get("kind") == REAL
    return {
        name: value
        for name, value in fields.items()
        if value not in ("", None, {}) or (kept and name == "columns")
    }


def read_program(text: str, tensors: Mapping[str, str]) -> Program:
    """Return the program of a JSON text, with tensors of these kinds.

    Raises ValueError, with the place in the program, for what `Program` cannot express.
    """
    given = parse("pyops.model", text)
    version = given.get("version")
    if type(version) is not int or version != VERSION:
        raise ValueError(f"pyops.model: version: expected {VERSION}, got {version!r:.40}")
    _check_keys("pyops.model", given, _KEYS, ("tied",))
    program = Program(
        _text("name", given["name"]),
        _scalars("hyperparameters", given["hyperparameters"]),
        tuple(_input(f"inputs[{i}]", one) for i, one in _enumerated("inputs", given["inputs"])),
        _texts("parameters", given["parameters"]),
        _names("tied", given.get("tied", {})),
        tuple(_step(f"steps[{i}]", one) for i, one in _enumerated("steps", given["steps"])),
        _texts("outputs", given["outputs"]),
    )
    check(program, tensors)
    return program


def check(program: Program, tensors: Mapping[str, str]) -> None:
    """Refuse names that are undefined, defined twice or of another kind than a call takes."""
    kinds: dict[str, str] = dict(tensors)
    for place, given in enumerate(program.inputs):
        _define(f"inputs[{place}]", given.name, given.kind, kinds)
    rows = {given.name for given in program.inputs if given.kind != GRAPH} | {""}
    for given in program.inputs:
        if not {given.num_src, given.num_dst} <= rows:
            raise ValueError(f"{given.name}: num_src, num_dst: expected names of inputs with rows")
    _check_tensors(program, tensors)
    for place, step in enumerate(program.steps):
        label = f"steps[{place}]: {step.call}"
        call = CALLS.get(step.call)
        if call is None:
            raise ValueError(f"steps[{place}]: call: expected one of pyops.models, got "
                             f"{step.call!r:.40}")  # fmt: skip
        for name in step.names:
            if name not in kinds or name in program.tied:
                raise ValueError(f"{label}: expected a name that is defined, got {name!r:.40}")
        call.check(label, step.graph, step.inputs, step.options, kinds)
        _define(label, step.result, call.result, kinds)
    for name in program.outputs:
        if kinds.get(name) != REAL:
            raise ValueError(f"outputs: expected names of real values, got {name!r:.40}")
    if not program.outputs:
        raise ValueError("outputs: expected one or more, got none")


def _define(label: str, name: str, kind: str, kinds: dict[str, str]) -> None:
    if name in kinds:
        raise ValueError(f"{label}: expected a name that is not used yet, got {name!r:.40}")
    kinds[name] = kind


def _check_tensors(program: Program, tensors: Mapping[str, str]) -> None:
    for name in program.parameters:
        if tensors.get(name) != REAL or name in program.tied:
            raise ValueError(f"parameters: expected names of real tensors, got {name!r:.40}")
    if len(set(program.parameters)) != len(program.parameters):
        raise ValueError("parameters: expected different names")
    for name, other in program.tied.items():
        if not {name, other} <= tensors.keys() or other in program.tied:
            raise ValueError(f"tied: expected names of tensors, got {name!r:.40}: {other!r:.40}")


def _input(label: str, given: object) -> Input:
    fields = _object(label, given)
    kind = fields.get("kind")
    if kind not in _KINDS:
        raise ValueError(f"{label}: kind: expected one of {', '.join(_KINDS)}, got {kind!r:.40}")
    own = {GRAPH: ("num_src", "num_dst"), REAL: ("columns",), INDEX: ()}[kind]
    optional = own if kind == GRAPH else ()
    _check_keys(label, fields, ("name", "kind", *own), optional)
    columns = fields.get("columns")
    if columns is not None and (type(columns) is not int or not 0 <= columns < 2**31):
        raise ValueError(f"{label}: columns: expected an integer or null, got {columns!r:.40}")
    ends = [_text(f"{label}: {end}", fields[end]) if end in fields else "" for end in optional]
    return Input(_text(f"{label}: name", fields["name"]), kind, columns, *ends)


def _step(label: str, given: object) -> Step:
    fields = _object(label, given)
    optional = "inputs", "options", "graph"
    _check_keys(label, fields, ("call", "result", *optional), optional)
    return Step(
        _text(f"{label}: call", fields["call"]),
        _text(f"{label}: result", fields["result"]),
        _names(f"{label}: inputs", fields.get("inputs", {})),
        _scalars(f"{label}: options", fields.get("options", {}), lists=True),
        _text(f"{label}: graph", fields["graph"]) if "graph" in fields else "",
    )


def _check_keys(
    label: str, given: Mapping[str, object], known: Collection[str], optional: Collection[str]
) -> None:
    missing = [key for key in known if key not in given and key not in optional]
    others = [key for key in given if key not in known]
    if missing or others:
        expected = ", ".join(known)
        raise ValueError(f"{label}: expected the keys {expected}, got {', '.join(given)!r:.80}")


def _object(label: str, given: object) -> dict[str, object]:
    if not isinstance(given, dict):
        raise ValueError(f"{label}: expected an object, got {type(given).__name__}")
    return given


def _enumerated(label: str, given: object) -> enumerate[object]:
    if not isinstance(given, list):
        raise ValueError(f"{label}: expected a list, got {type(given).__name__}")
    return enumerate(given)


def _text(label: str, given: object) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"{label}: expected a text, got {given!r:.40}")
    return given


def _texts(label: str, given: object) -> tuple[str, ...]:
    return tuple(_text(f"{label}[{i}]", one) for i, one in _enumerated(label, given))


def _names(label: str, given: object) -> dict[str, str]:
    return {
        _text(label, name): _text(f"{label}: {name}", value)
        for name, value in _object(label, given).items()
    }


def _scalars(label: str, given: object, lists: bool = False) -> dict[str, Scalar]:
    found = _object(label, given)
    return {name: scalar(f"{label}: {name}", value, lists) for name, value in found.items()}


def scalar(label: str, value: object, lists: bool = False) -> Scalar:
    """Return a number, text or truth value, or None; also a list of numbers if `lists` is set."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if lists and isinstance(value, list):
        numbers = [scalar(label, one) for one in value]
        found = tuple(n for n in numbers if isinstance(n, (int, float)) and not isinstance(n, bool))
        if len(found) == len(value):
            return found
    raise ValueError(f"{label}: expected a number, a text, true, false or null, got {value!r:.40}")
