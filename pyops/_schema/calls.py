"""C functions that call each kernel of the operators with arguments from an array of slots.

The functions include ``calls.h``, the file beside this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .interface import HALVES, interfaces, variants

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from .interface import Argument, Procedure

PHASES = "forward", "backward", "double_backward", "softmax_forward", "softmax_vjps"
INTRODUCTION = """\
/* Calls of the kernels, generated from their interfaces. */
#include "calls.h"

#include "pyops.h"
"""


def called_kernels(
    operators: Iterable[str],
    declarations: Path,
    phases: Sequence[str] = PHASES,
    halves: Collection[str] = (),
) -> dict[str, Procedure]:
    """Return the interfaces of the called kernels by name, in the order of their table.

    `halves` are the variants for half precision that are called.
    """
    return {
        f"{operator}_{phase}_{variant}": procedure
        for operator in operators
        for variant in variants(operator, declarations)
        if variant in halves or variant not in HALVES
        for phase, procedure in interfaces(operator, declarations).items()
        if phase in phases
    }


def write_calls(kernels: Mapping[str, Procedure]) -> str:
    """Return the C source of the calls, with the table `kernels` at its end."""
    calls = [_write_call(name, procedure) for name, procedure in kernels.items()]
    rows = "".join(f'  {{"{name}", {name}}},\n' for name in kernels)
    return "\n".join([INTRODUCTION, *calls, f"const Kernel kernels[] = {{\n{rows}  {{0}}}};\n"])


def _write_call(name: str, procedure: Procedure) -> str:
    values = ",\n      ".join(_slot(n, a) for n, a in enumerate(procedure.arguments[:-1]))
    return (
        f"static int32_t {name}(const Slot *slots) {{\n  int32_t status = 0;\n"
        f"  pyops_{name}(\n      {values},\n      &status);\n  return status;\n}}\n"
    )


def _slot(number: int, argument: Argument) -> str:
    """Return the C expression that reads an argument from its slot."""
    if argument.intent != "value":
        return f"slots[{number}].address"
    if argument.type == "float64":
        return f"slots[{number}].real"
    return f"({argument.type}_t)slots[{number}].integer"
