"""Write the Fortran of a stage: a loop over one or two ranges that a device runs in parallel.

Two procedures result: the loop, which calls the body for all iterations under the directive of the
flavour, and the body, a device routine. Variables are local to the body, so no directive lists any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUTINES = {"acc": "!$acc routine seq", "target": "!$omp declare target", "threads": ""}
SCALARS = {
    "": "integer(c_int64_t)",
    "?": "logical",
    ".": "integer(c_int32_t)",
    "~": "real(c_double)",
}
ARRAYS = {
    "": "real(wp)",
    "'": "real(c_double)",
    "#": "integer(c_int64_t)",
    "%": "integer(c_int32_t)",
}
MOST = "2_c_int64_t**40"
"""Dummy extent of arrays in loops. A device address needs an explicit one, which the libgomp of GCC
12 mishandles from the second call on unless it is a constant."""


@dataclass(frozen=True)
class Argument:
    """Argument: `name` with a suffix for its type; `(extents)` of an array; + if it is written.

    Scalars are int64, logical (?), int32 (.) or float64 (~); arrays have the working precision, or
    are float64 ('), int64 (#) or int32 (%). An array with @ is on the host and is copied.
    """

    name: str
    suffix: str = ""
    extents: str = ""
    is_written: bool = False
    on_host: bool = False

    @classmethod
    def parse(cls, text: str) -> Argument:
        match = re.fullmatch(r"([+@]?)(\w+)([?.~'#%]?)(?:\((.*)\))?", text)
        if match is None:
            raise ValueError(f"not an argument of a stage: {text!r}")
        sign, name, suffix, extents = match.groups()
        return cls(name, suffix, extents or "", sign == "+", sign == "@")

    def declaration(self, in_loop: bool) -> tuple[str, str]:
        """Returns its type and its name, as declared in the loop or in the body."""
        if not self.extents:
            return f"{SCALARS[self.suffix]}, value", self.name
        extents = MOST if in_loop and not self.on_host else self.extents
        intent = "inout" if self.is_written else "in"
        return f"{ARRAYS[self.suffix]}, intent({intent})", f"{self.name}({extents})"


def declare(arguments: Sequence[Argument], in_loop: bool) -> list[str]:
    """Returns declarations, scalars before the arrays that have them as extents."""
    groups: dict[str, list[str]] = {}
    for argument in sorted(arguments, key=lambda a: bool(a.extents)):
        kind, text = argument.declaration(in_loop)
        groups.setdefault(kind, []).append(text)
    found = [f"{kind} :: {', '.join(names)}" for kind, names in groups.items()]
    return [line for declaration in found for line in fold(declaration)]


def directive(flavour: str, loops: int, arguments: Sequence[Argument]) -> list[str]:
    """Returns the directive of a loop."""
    addresses = [a.name for a in arguments if a.extents and not a.on_host]
    copied = [a.name for a in arguments if a.on_host]
    start, clauses = {
        "acc": ("!$acc parallel loop gang vector", {"deviceptr": addresses, "copyin": copied}),
        "target": (
            "!$omp target teams distribute parallel do",
            {"is_device_ptr": addresses, "map": copied and [f"to: {', '.join(copied)}"]},
        ),
        "threads": ("!$omp parallel do", {}),
    }[flavour]
    words = [start] + [f"collapse({loops})"] * (loops > 1)
    words += [f"{clause}({', '.join(names)})" for clause, names in clauses.items() if names]
    return fold(" ".join(words), start[:5])


def fold(text: str, sentinel: str = "", indent: str = "    ") -> list[str]:
    """Breaks a long line into continued ones."""
    lines, line = [], indent
    for word in text.split(" "):
        if len(line) + len(word) > 96:
            lines.append(line.rstrip() + " &")
            line = f"{indent}{sentinel}& " if sentinel else f"{indent}  "
        line += word + " "
    return [*lines, line.rstrip()]


def names(arguments: Sequence[Argument]) -> str:
    return ", ".join(a.name for a in arguments)


def stage(name: str, over: str, more: str, flavour: str) -> str:
    """Returns the loop, and the head of its body.

    `over` is like "i rows, c width": variables and upper bounds. `more` has the other arguments.
    """
    ranges = [part.split() for part in over.split(",")]
    bounds = dict.fromkeys(bound for _, bound in ranges)
    arguments = [Argument(bound) for bound in bounds]
    arguments += [Argument.parse(word) for word in re.findall(r"[^\s(]+(?:\([^()]*\))?", more)]
    of_body = [*(Argument(variable) for variable, _ in ranges), *arguments]
    variables = ", ".join(variable for variable, _ in ranges)

    lines = fold(f"subroutine {name}({names(arguments)})", indent="  ")
    lines += declare(arguments, in_loop=True)
    lines.append(f"    integer(c_int64_t) :: {variables}")
    lines += directive(flavour, len(ranges), arguments)
    lines += [f"    do {variable} = 1, {bound}" for variable, bound in ranges]
    lines += fold(f"call {name}_body({names(of_body)})", indent=" " * 6)
    lines += ["    end do"] * len(ranges) + ["  end subroutine", ""]
    lines += fold(f"pure subroutine {name}_body({names(of_body)})", indent="  ")
    lines += [f"    {ROUTINES[flavour]}"] * bool(ROUTINES[flavour])
    lines += declare(of_body, in_loop=False)
    return "\n".join(lines).lstrip()
