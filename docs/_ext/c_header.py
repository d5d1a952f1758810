"""Writes the pages of `pyops.h` from the header, which the build makes from the declarations."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from docstrings import title, write_changed
from operators import table, toctree

from pyops.__main__ import installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "c"
START = '#ifdef __cplusplus\nextern "C" {\n#endif\n'
ITEM = re.compile(
    r"/\* (?P<comment>.*?) \*/|enum (?P<enum>\w+ \{.*?\});|^(?P<procedure>\w[^#;{}/]*\));",
    re.DOTALL | re.MULTILINE,
)
PRECISION = re.compile(r"_(r4|r8|bf16|fp16)(?=\()")
EXAMPLE = """\
A program that compares the gradients of :doc:`gno_conv` with central differences:

.. literalinclude:: ../../../examples/fortran/gno_conv.c
   :language: c

It is compiled by ``cc gno_conv.c $(python -m pyops --flags) -lm -o gno_conv``, or as in
:doc:`../../guide/linking`.
"""
STATUS = "Statuses that are negative; :doc:`../errors` has all of them."


class Part(NamedTuple):
    """A comment of the header, or several that are equal, and the declarations below."""

    comment: str
    enums: list[str]
    procedures: list[str]

    @property
    def text(self) -> str:
        """The comment before its table of arguments."""
        return markup(" ".join(self.comment.partition("\n\n")[0].split()))

    @property
    def summary(self) -> str:
        """First sentence, without the name of the operator."""
        return re.match(r"(?:[\w\\]+: )?(.*?\.)(?: |$)", self.text)[1]

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Name and meaning of each argument."""
        rows = self.comment.partition("\n\n")[2]
        found = re.findall(r"^(\w+) +(.*(?:\n +.*)*)", rows, re.MULTILINE)
        return [(f"``{name}``", markup(" ".join(text.split()))) for name, text in found]


def uncommented(text: str) -> str:
    """Return a comment without the asterisks of its lines."""
    return re.sub(r"^ \* ?", "", text, flags=re.MULTILINE)


def markup(text: str) -> str:
    """Return text of the header as reStructuredText."""
    parts = re.split(r"`([^`]+)`", text)
    parts[::2] = [re.sub(r"([\\*_|])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``" for part in parts[1::2]]
    return "".join(parts)


def parts(header: str) -> Iterator[Part]:
    """Yield the parts of the header below its introduction."""
    part = Part("", [], [])
    for found in ITEM.finditer(header.partition(START)[2]):
        if found["comment"]:
            comment = uncommented(found["comment"])
            if part.comment and comment != part.comment:
                yield part
            part = part if comment == part.comment else Part(comment, [], [])
        elif found["enum"]:
            part.enums.append(found["enum"])
        else:
            part.procedures.append(" ".join(found["procedure"].split()))
    yield part


def enumeration(text: str) -> str:
    """Return the entry of an enumeration."""
    name, _, members = text.partition("{")
    lines = [f".. c:enum:: {name.strip()}\n"]
    lines += [f"   .. c:enumerator:: {m.strip()}" for m in members.rstrip("}").split(",")]
    return "\n".join(lines) + "\n\n"


def entries(procedures: Iterable[str], about: str = "") -> str:
    """Return the entries of procedures; those that differ in their precision alone share one."""
    kinds: dict[str, list[str]] = {}
    for procedure in procedures:
        kinds.setdefault(PRECISION.sub("", procedure).partition("(")[0], []).append(procedure)
    text = ""
    for signatures in kinds.values():
        head = ".. c:function:: "
        text += head + f"\n{' ' * len(head)}".join(signatures) + "\n\n"
        text += indent(about, "   ") + "\n"
    return text


def operator_page(name: str, part: Part) -> str:
    """Return the page of the kernels of an operator."""
    page = name if name != "elementwise" else "family_elementwise"
    text = title(name) + f"{part.summary} Formula and options: :doc:`../operators/{page}`.\n\n"
    text += title("Arguments", "-") + table(("Argument", "Meaning"), part.arguments)
    if part.enums:
        text += title("Choices", "-") + "".join(map(enumeration, part.enums))
    return text + title("Procedures", "-") + entries(part.procedures)


def index(header: str, general: Iterable[Part], operators: dict[str, Part]) -> str:
    """Return the page of the header."""
    introduction = uncommented(re.match(r"/\* (.*?) \*/", header, re.DOTALL)[1])
    text = title("C header pyops.h") + markup(introduction) + "\n\n"
    text += title("Example", "-") + EXAMPLE + "\n"
    text += title("Operators", "-")
    rows = [(f":doc:`{name}`", part.summary) for name, part in operators.items()]
    text += table(("Kernels", "Compute"), rows)
    text += title("Constants", "-") + f"{STATUS}\n\n"
    for name, value in re.findall(r"^#define (PYOPS_\w+) \((-\d+)\)", header, re.MULTILINE):
        text += f".. c:macro:: {name}\n\n   {value}\n\n"
    enums = [part for part in general if part.enums]
    text += "".join(f"{p.text}\n\n" + "".join(map(enumeration, p.enums)) for p in enums)
    text += title("Models, graphs, threads and conversions", "-")
    for part in general:
        about = f"{part.text}\n\n"
        about += table(("Argument", "Meaning"), part.arguments) if part.arguments else ""
        text += entries(part.procedures, about)
    return text + toctree(operators)


def pages(header: str) -> dict[str, str]:
    """Return all pages by name."""
    known = {path.stem for path in (ROOT / "pyops" / "ops").glob("*.py")}
    general, operators = [], {}
    for part in parts(header):
        name = part.comment.partition(":")[0]
        if name in known:
            operators[name] = part
        else:
            general.append(part)
    written = {name: operator_page(name, part) for name, part in operators.items()}
    return {**written, "index": index(header, general, operators)}


def write(folder: Path = FOLDER) -> None:
    """Write all pages."""
    write_changed(folder, pages(installed("include", "pyops.h").read_text()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", lambda _: write())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
