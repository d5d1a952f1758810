"""Reads docstrings in the form of numpydoc, for pages that are written without an import."""

from __future__ import annotations

import inspect
import re
from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Docstring:
    """A docstring: the text before the first section, and the sections."""

    def __init__(self, text: str) -> None:
        found = re.split(r"^([A-Z][\w ]+)\n-{3,}\n", inspect.cleandoc(text), flags=re.M)
        self.text = found[0].strip()
        pairs = zip(found[1::2], found[2::2], strict=True)
        self.sections = {name: body.strip() for name, body in pairs}

    @property
    def summary(self) -> str:
        """First paragraph, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())

    def indented_text(self) -> str:
        """Return the text as the content of a directive."""
        return indent(self.text, "   ") + "\n"

    def entries(self, section: str) -> list[tuple[str, str, str]]:
        """Return the names, type and text of each entry of a section."""
        found = re.split(r"^(?=\S)", self.sections.get(section, ""), flags=re.M)
        heads = ((entry.partition("\n")) for entry in found if entry.strip())
        split = ((*head.partition(" : ")[::2], body) for head, _, body in heads)
        return [(names.strip(), kind.strip(), inspect.cleandoc(b)) for names, kind, b in split]

    def parameter(self, name: str) -> str:
        """Return the text of a parameter; empty if there is none."""
        for names, _, text in self.entries("Parameters"):
            if name in names.split(", "):
                return text
        return ""

    def returned(self) -> tuple[str, str]:
        """Return type and text of the one result."""
        entries = self.entries("Returns") or [("", "", "")]
        return entries[0][0].removeprefix("array, "), entries[0][2]

    def result(self, name: str) -> str:
        """Return the text of one of several results."""
        return next((text for n, _, text in self.entries("Returns") if n == name), "")

    def markup(self) -> str:
        """Return all of it as reStructuredText, in the form of numpydoc's."""
        text = self.text + "\n\n"
        for section, body in self.sections.items():
            if section == "Parameters":
                text += ":Parameters:\n\n"
                for names, kind, about in self.entries(section):
                    shown = ", ".join(f"**{name}**" for name in names.split(", "))
                    shown += f" : {kind}" * bool(kind)
                    text += indent(f"{shown}\n{indent(about or '..', '    ')}\n\n", "    ")
            else:
                text += f".. rubric:: {section}\n\n{body}\n\n"
        return text


def title(text: str, line: str = "=") -> str:
    """Return a heading."""
    return f"{text}\n{line * len(text)}\n\n"


def parameters(signature: inspect.Signature) -> str:
    """Return the parameters of a function without annotations."""
    shown = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(inspect.Signature(shown))
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)  # members of enumerations


def write_changed(folder: Path, texts: dict[str, str]) -> None:
    """Write pages whose text has changed, and remove those of earlier builds."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.rst"):
        if path.stem not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
