"""Write the C functions that call each kernel of the operators with arguments from an array.

python calls.py calls.c pyops/ops OPERATOR...
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "pyops"))
from procedures import Argument, Procedure, declared_procedures

INTRODUCTION = """\
/* Calls of the kernels, generated from their interfaces. */
#include "calls.h"

#include "pyops.h"
"""
PHASES = "forward", "backward", "double_backward"


def slot(number: int, argument: Argument) -> str:
    """Returns the C expression that reads an argument from its slot."""
    if not argument.by_value:
        return f"slots[{number}].address"
    if argument.type == "double":
        return f"slots[{number}].real"
    return f"({argument.type})slots[{number}].integer"


def write_call(name: str, procedure: Procedure) -> str:
    *arguments, status = procedure.arguments
    assert status.name == "status", name
    values = ",\n      ".join(slot(n, a) for n, a in enumerate(arguments))
    return (
        f"static int32_t {name}(const Slot *slots) {{\n  int32_t status = 0;\n"
        f"  {procedure.name}(\n      {values},\n      &status);\n  return status;\n}}\n"
    )


def write_calls(declarations: Path, operators: list[str]) -> str:
    chosen = {f"pyops_{o}_{phase}_{v}" for o in operators for phase in PHASES for v in ("r4", "r8")}
    found = {
        procedure.name.removeprefix("pyops_"): procedure
        for operator in operators
        for procedure in declared_procedures(operator, declarations, "")
        if procedure.name in chosen
    }
    calls = [write_call(name, procedure) for name, procedure in found.items()]
    rows = "".join(f'  {{"{name}", {name}}},\n' for name in found)
    return "\n".join([INTRODUCTION, *calls, f"const Kernel kernels[] = {{\n{rows}  {{0}}}};\n"])


if __name__ == "__main__":
    out, declarations, *operators = sys.argv[1:]
    Path(out).write_text(write_calls(Path(declarations), operators))
