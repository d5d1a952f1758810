"""Prototypes of the procedures that are bound to C.

Those of operators follow from the schema; those of modules without one are read from the source.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import _schema

TYPES = {
    "integer(c_int64_t)": "int64_t",
    "integer(c_int32_t)": "int32_t",
    "integer(c_int16_t)": "int16_t",
    "integer(c_int)": "int",
    "real(c_float)": "float",
    "real(c_double)": "double",
    "type(c_ptr)": "void *",
    "character(kind=c_char)": "char",
    "type(c_funptr)": "int (*%s)(void)",
}
# Keywords of C and C++ that may be names of Fortran arguments.
RESERVED = {
    "and",
    "class",
    "default",
    "delete",
    "double",
    "export",
    "float",
    "for",
    "friend",
    "int",
}
RESERVED |= {"long", "new", "not", "operator", "or", "register", "short", "signed", "static"}
RESERVED |= {"switch", "template", "this", "union", "using", "virtual", "void", "volatile", "xor"}


@dataclass
class Argument:
    name: str
    type: str
    shape: str = ""
    """Dimensions in C order, if the source gives all of them."""
    written: bool = False
    by_value: bool = False
    note: str = ""

    def declare(self) -> str:
        name = f"{self.name}_" if self.name in RESERVED else self.name
        if "%s" in self.type:
            return self.type % name
        if self.by_value:
            return f"{self.type} {name}".replace("* ", "*")
        return f"{'' if self.written else 'const '}{self.type} *{name}".replace("* *", "**")


@dataclass
class Procedure:
    name: str
    result: str
    arguments: list[Argument]
    doc: str = ""
    module: str = ""
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [a.name for a in self.arguments]

    def prototype(self) -> str:
        lines = [f"{self.result} {self.name}(".replace("* ", "*")]
        for n, argument in enumerate(self.arguments or [Argument("", "void", by_value=True)]):
            text = argument.declare().strip() + (", " if n < len(self.arguments) - 1 else ");")
            if len(lines[-1]) + len(text) > 97:
                lines.append("    ")
            lines[-1] += text
        return "\n".join(line.rstrip() for line in lines)


def declared_procedures(name: str, declarations: Path, source: str) -> Iterator[Procedure]:
    """Yield the procedures of an operator, with the documentation of its module."""
    module = module_documentation(join_lines(source))
    kinds = {"int16": "int16_t", "int32": "int32_t", "int64": "int64_t"}
    kinds |= {"float32": "float", "float64": "double"}
    for suffix, (real, row) in _schema.variants(name, declarations).items():
        for phase, procedure in _schema.interfaces(name, declarations).items():
            arguments = [
                Argument(
                    a.name,
                    kinds[(row if a.half else real) if a.type == "real" else a.type],
                    written=a.intent in ("inout", "out"),
                    by_value=a.intent == "value",
                )
                for a in procedure.arguments
            ]
            yield Procedure(f"pyops_{name}_{phase}_{suffix}", "void", arguments, module=module)


def module_documentation(lines: list[str]) -> str:
    head = next((n for n, line in enumerate(lines) if line.startswith("module ")), 0)
    return " ".join(" ".join(documentation(lines[head + 1 :])).split())


def read_procedures(source: str) -> list[Procedure]:
    lines = join_lines(source)
    module = module_documentation(lines)
    heading = re.compile(
        r'(?:pure )?(subroutine|.*\bfunction) (\w+) ?\((.*?)\) ?bind\(c, ?name="(\w+)"\)'
    )
    found = []
    for n, line in enumerate(lines):
        if match := heading.fullmatch(line):
            kind, _, names, name = match.groups()
            result = "void"
            if kind != "subroutine":
                result = TYPES[kind.removesuffix("function").strip().removeprefix("pure ")]
            doc = documentation(lines[n + 1 :])
            declared = declarations(lines[n + 1 + len(doc) :])
            try:
                arguments = [declared[a] for a in re.findall(r"\w+", names)]
            except KeyError as missing:
                raise SystemExit(f"{name}: no declaration of {missing}") from None
            found.append(Procedure(name, result, arguments, " ".join(doc), module))
    return found


_interfaces = re.compile(r"^ *(abstract )?interface\b.*?^ *end interface", re.DOTALL | re.M)


def join_lines(source: str) -> list[str]:
    """Returns the statements without their indent, continued ones joined into one line."""
    joined = re.sub(r" *& *\n *&? *", " ", _interfaces.sub("", source))
    return [re.sub(r"\( ", "(", line.strip()) for line in joined.split("\n")]


def documentation(lines: list[str]) -> list[str]:
    """Returns the comments `!!` at the head."""
    found = []
    for line in lines:
        if not line.startswith("!!"):
            break
        found.append(line[2:].strip())
    return found


def declarations(lines: list[str]) -> dict[str, Argument]:
    """Reads all declarations before the first statement."""
    found: dict[str, Argument] = {}
    for line in lines:
        code, _, note = line.partition("!!")
        head, colons, names = code.partition("::")
        if not colons:
            if not line.startswith("!"):
                break
            continue
        attributes = [a.strip() for a in re.split(r",(?![^(]*\))", head)]
        if attributes[0] not in TYPES:
            continue
        for name, dims in re.findall(r"(\w+)(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?", names):
            found[name] = Argument(
                name,
                TYPES[attributes[0]],
                "" if not dims or "*" in dims else f"[{']['.join(dims.split(',')[::-1])}]",
                any("out" in a for a in attributes),
                "value" in attributes,
                note.strip(),
            )
    return found
