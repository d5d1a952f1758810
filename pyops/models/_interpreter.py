"""Evaluation of a program by a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ._calls import CALLS, INDEX, REAL, ROWS, Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._calls import Machine
    from ._program import Program, Step

Value = TypeVar("Value")


def evaluate(
    program: Program,
    machine: Machine[Value],
    reals: Mapping[str, Value],
    others: Mapping[str, object],
) -> list[Value]:
    """Return the outputs of a program for inputs and tensors by name.

    Values are freed after the last step that uses them, unless the machine holds them.
    """
    values, rest = dict(reals), dict(others)
    last = last_uses(program)
    for place, step in enumerate(program.steps):
        run(step, f"steps[{place}]", machine, values, rest)
        for name in last.get(place, ()):
            values.pop(name, None)
            rest.pop(name, None)
    return [values[name] for name in program.outputs]


def last_uses(program: Program) -> dict[int, list[str]]:
    """Return the names that no later step uses, by the place of the step."""
    last: dict[str, int] = {}
    for place, step in enumerate(program.steps):
        last.update(dict.fromkeys([*step.names, step.result], place))
    found: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in program.outputs:
            found.setdefault(place, []).append(name)
    return found


def run(
    step: Step,
    label: str,
    machine: Machine[Value],
    values: dict[str, Value],
    others: dict[str, object],
) -> None:
    """Evaluate a step and add its result to the values, or to the graphs and indices."""
    call = CALLS[step.call]
    kinds = {name: call.inputs.get(name, REAL) for name in step.inputs}
    given = Given(
        others[step.graph] if step.graph else None,
        {name: values[step.inputs[name]] for name, kind in kinds.items() if kind == REAL},
        {name: others[step.inputs[name]] for name, kind in kinds.items() if kind == INDEX},
        {
            name: _rows(machine, values, others, step.inputs[name])
            for name, kind in kinds.items()
            if kind == ROWS
        },
        step.options,
    )
    try:
        if call.evaluate is not None:
            values[step.result] = call.evaluate(machine, given)
        else:
            assert call.make is not None
            others[step.result] = call.make(machine, given)
    except (TypeError, ValueError, IndexError) as error:
        text = str(error).removeprefix(f"{step.call}: ")
        raise type(error)(f"{label}: {step.call}: {text}") from error


def _rows(
    machine: Machine[Value], values: Mapping[str, Value], others: Mapping[str, object], name: str
) -> int:
    held = values.get(name)
    shape = getattr(others.get(name), "shape", ()) if held is None else machine.shape(held)
    if not shape:
        raise ValueError(f"{name}: expected a vector or a matrix, got a number")
    return int(shape[0])
