"""Values of a program that have equally many rows, or a row for each node of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..._call.operator import OPERATORS
from ..._schema.declaration import GRAPH_SIZES
from ...models._calls import GRAPH
from ...ops.elementwise import ARITY, REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...models._program import Program, Step

    Shapes = Mapping[str, tuple[int, ...]]
    Ends = Mapping[str, tuple[str, str]]

_KEPT = "linear", "layer_norm", "softmax", "log_softmax"
"""Calls whose results have as many rows as their input x; reductions of rows are not among them."""
_SAME = "reverse", "remove_self_loops", "add_self_loops"


_BY_COLUMN = *REDUCTIONS, "concat", "slice"
"""Calls whose results have as many rows as their inputs if their axis is 1."""


def _axis(step: Step) -> int | None:
    axis = step.options.get("axis")
    return 1 if axis == -1 else axis if isinstance(axis, int) else None


class _Classes:
    """Equivalence classes of numbers of rows, by union and find."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def find(self, one: str) -> str:
        while self._parents.get(one, one) != one:
            one = self._parents[one]
        return one

    def join(self, one: str, other: str) -> None:
        self._parents[self.find(one)] = self.find(other)


def _classes(steps: Sequence[Step], shapes: Shapes, ends: Ends) -> _Classes:
    """Return which values have equally many rows, as the calls that use them require so.

    `shapes` are those of real values for the example inputs, `ends` values with rows for sources
    and destinations.
    """
    classes = _Classes()
    for graph, names in ends.items():
        for name, size in zip(names, ("num_src", "num_dst"), strict=True):
            classes.join(name, f"{graph}:{size}")
    for step in steps:
        _join(classes, step, shapes)
    return classes


def have_same_rows(one: str, other: str, steps: Sequence[Step], shapes: Shapes, ends: Ends) -> bool:
    """Return whether two values have equally many rows for all inputs."""
    classes = _classes(steps, shapes, ends)
    return classes.find(one) == classes.find(other)


def sizes_of_graphs(program: Program, shapes: Shapes, ends: Ends) -> Program:
    """Return the program whose graphs name inputs with rows for their nodes, where there are some.

    The arguments are those of `have_same_rows`.
    """
    classes = _classes(program.steps, shapes, ends)
    rows = {classes.find(one.name): one.name for one in program.inputs[::-1] if one.kind != GRAPH}
    found = [
        replace(
            one,
            num_src=rows.get(classes.find(f"{one.name}:num_src"), ""),
            num_dst=rows.get(classes.find(f"{one.name}:num_dst"), ""),
        )
        if one.kind == GRAPH
        else one
        for one in program.inputs
    ]
    return replace(program, inputs=tuple(found))


def _join(classes: _Classes, step: Step, shapes: Shapes) -> None:
    operator = OPERATORS.get(step.call)
    if operator is not None and operator.signature.has_graph:
        signature = operator.signature
        for name, value in step.inputs.items():
            if name in signature.inputs:
                _join_axis(classes, step, value, signature.inputs[name].shape[0].text)
        _join_axis(classes, step, step.result, signature.output[0].text)
    elif step.call in ARITY or (step.call in _BY_COLUMN and _axis(step) == 1):
        for name in step.inputs.values():
            if _has_rows(step, shapes[name], shapes[step.result]):
                classes.join(step.result, name)
    elif (
        step.call == "reshape" and shapes[step.inputs["x"]][:1] == shapes[step.result][:1]
    ) or step.call in _KEPT:
        classes.join(step.result, step.inputs["x"])
    elif step.call == "gather":
        classes.join(step.result, step.inputs["index"])
    elif step.call == "full":
        classes.join(step.result, step.inputs["like"])
    elif step.call in _SAME:
        names = ["num_src", "num_dst"]
        ends = names[::-1] if step.call == "reverse" else names
        for name, end in zip(names, ends, strict=True):
            classes.join(f"{step.result}:{name}", f"{step.graph}:{end}")
    elif step.call == "in_degrees":
        classes.join(step.result, f"{step.graph}:num_dst")


def _has_rows(step: Step, operand: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Return whether an operand has the rows of the result; one row or axis less is repeated."""
    same_axes = len(operand) == len(result) or step.call in REDUCTIONS
    return same_axes and operand[:1] == result[:1] and result[:1] not in ((), (1,))


def _join_axis(classes: _Classes, step: Step, value: str, size: str) -> None:
    if size in GRAPH_SIZES:
        classes.join(value, f"{step.graph}:{size}")
