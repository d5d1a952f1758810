"""Write the Fortran of a stage: a loop over one or two ranges that a device runs in parallel.

A stage is described once, by its loops, its arguments and its body for one iteration (the "place").
Each precision gets two procedures: the body, a device routine, and the loop that calls it for all
iterations under the directive of the flavour. Variables are local to the body, so no directive
lists any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

ROUTINES = {"acc": "!$acc routine seq", "target": "!$omp declare target", "threads": ""}
SCALARS = {
    "": "integer(c_int64_t)",
    "?": "logical",
    ".": "integer(c_int32_t)",
    "~": "real(c_double)",
}
ARRAYS = {
    "": "real({wp})",
    "'": "real(c_double)",
    "#": "integer(c_int64_t)",
    "%": "integer(c_int32_t)",
}
MOST = "2_c_int64_t**40"
"""Dummy extent of arrays in loops. A device address needs an explicit one, which the libgomp of GCC
12 mishandles from the second call on unless it is a constant."""


@dataclass(frozen=True)
class Taken:
    """Argument: `name` with a suffix for its type; `(extents)` of an array; + if it is written.

    Scalars are int64, logical (?), int32 (.) or float64 (~); arrays have the working precision, or
    are float64 ('), int64 (#) or int32 (%). An array with @ is on the host and is copied.
    """

    name: str
    mark: str
    extents: str
    written: bool
    hosted: bool

    @classmethod
    def parse(cls, text: str) -> Taken:
        match = re.fullmatch(r"([+@]?)(\w+)([?.~'#%]?)(?:\((.*)\))?", text)
        if match is None:
            raise ValueError(f"not an argument of a stage: {text!r}")
        sign, name, mark, extents = match.groups()
        return cls(name, mark, extents or "", sign == "+", sign == "@")

    def declared(self, wp: str, loop: bool) -> tuple[str, str]:
        """Returns its type and its name, as declared in the body or in the loop."""
        if not self.extents:
            return f"{SCALARS[self.mark]}, value", self.name
        extents = MOST if loop and not self.hosted else self.extents
        intent = "inout" if self.written else "in"
        return f"{ARRAYS[self.mark].format(wp=wp)}, intent({intent})", f"{self.name}({extents})"


def declare(these: list[Taken], wp: str, loop: bool) -> list[str]:
    """Returns declarations, scalars before the arrays that have them as extents."""
    groups: dict[str, list[str]] = {}
    for t in sorted(these, key=lambda t: bool(t.extents)):
        kind, text = t.declared(wp, loop)
        groups.setdefault(kind, []).append(text)
    found = [f"{kind} :: {', '.join(names)}" for kind, names in groups.items()]
    return [line for declaration in found for line in fold(declaration)]


def take(text: str) -> list[Taken]:
    return [Taken.parse(word) for word in re.findall(r"[^\s(]+(?:\([^()]*\))?", text)]


def directive(flavour: str, loops: int, arrays: list[Taken]) -> list[str]:
    """Returns the directive of a loop."""
    addresses = [a.name for a in arrays if not a.hosted]
    copied = [a.name for a in arrays if a.hosted]
    start, clauses = {
        "acc": ("!$acc parallel loop gang vector", {"deviceptr": addresses, "copyin": copied}),
        "target": (
            "!$omp target teams distribute parallel do",
            {"is_device_ptr": addresses, "map": copied and [f"to: {', '.join(copied)}"]},
        ),
        "threads": ("!$omp parallel do", {}),
    }[flavour]
    words = [start] + [f"collapse({loops})"] * (loops > 1)
    for clause, names in clauses.items():
        if names:
            words.append(f"{clause}({', '.join(names)})")
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


def stage(name: str, over: str, takes: str, body: str, variant: str, wp: str, flavour: str) -> str:
    """Returns both procedures; `over` is like "i rows, c width": variables and upper bounds."""
    loops = [part.split() for part in over.split(",")]
    taken = take(takes)
    ends = dict.fromkeys(end for _, end in loops)
    own = [t for t in taken if t.name not in ends]
    extents = [Taken(end, "", "", False, False) for end in ends]
    arguments = [*extents, *own]
    place = [*(Taken(v, "", "", False, False) for v, _ in loops), *arguments]
    notes = re.match(r"(?:\s*!!.*\n)*", body.strip("\n"))
    note = notes[0] if notes else ""
    body = body.strip("\n")[len(note) :]
    heads = {}
    for suffix, these in (("_place", place), ("", arguments)):
        words = ", ".join(t.name for t in these)
        pure = "pure " if suffix else ""
        heads[suffix] = fold(f"{pure}subroutine {name}{suffix}_{variant}({words})", indent="  ")
    lines = [*heads["_place"]]
    if ROUTINES[flavour]:
        lines.append("    " + ROUTINES[flavour])
    lines += declare(place, wp, False)
    lines += [body.strip("\n"), "  end subroutine", "", *heads[""]]
    lines += note.rstrip("\n").split("\n") if note else []
    lines += declare(arguments, wp, True)
    lines.append("    integer(c_int64_t) :: " + ", ".join(v for v, _ in loops))
    lines += directive(flavour, len(loops), [t for t in arguments if t.extents])
    for depth, (variable, end) in enumerate(loops):
        lines.append("  " * (depth + 2) + f"do {variable} = 1, {end}")
    pad = "  " * (len(loops) + 2)
    words = ", ".join(t.name for t in place)
    lines += fold(f"call {name}_place_{variant}({words})", indent=pad)
    lines += ["  " * (depth + 2) + "end do" for depth in reversed(range(len(loops)))]
    return "\n".join([*lines, "  end subroutine"])


def entry(kernel: Any, wp: str, body: str) -> str:
    """Returns a procedure with the arguments of a CPU kernel, whose arrays are device addresses.

    The statements follow a line of ---, and work space is released after them.
    """
    groups: dict[str, list[str]] = {}
    for a in kernel.arguments:
        if a.name != "status":
            text = f"{a.name}(*)" if a.is_array else a.name
            groups.setdefault(f"{a.type}, {a.attributes}", []).append(text)
    head = f"subroutine {kernel.name}({', '.join(kernel.names)})"
    lines = fold(f'{head} bind(c, name="{kernel.binding}")', indent="  ")
    for kind, names in groups.items():
        lines += fold(f"{kind} :: {', '.join(names)}")
    declarations, _, statements = body.strip("\n").rpartition("    !---\n")
    lines += ["    integer(c_int32_t), intent(out) :: status", "    type(work_space) :: work"]
    lines += [declarations.rstrip("\n")] if declarations else []
    lines += ["    status = 0", "    steps: block", statements, "    end block steps"]
    return "\n".join([*lines, "    call release(work)", "  end subroutine"])
