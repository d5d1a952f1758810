"""Arguments as described by the declarations in pyops/ops and by their docstrings."""

import ast
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from _schema import Shape, Signature


@dataclass
class Declaration:
    """Content of the docstring and the annotations of an operator."""

    name: str
    inputs: dict[str, str] = field(default_factory=dict)
    """Shapes by name; alternative forms are separated by |."""
    options: list[str] = field(default_factory=list)
    choices: dict[str, list[str]] = field(default_factory=dict)
    output: str = ""
    further: dict[str, str] = field(default_factory=dict)
    """Shapes of what some procedures return beside or instead of the output."""
    optional: set[str] = field(default_factory=set)
    """Inputs, and options that are arrays, that may be absent."""
    where: dict[str, dict[str, str]] = field(default_factory=dict)
    """Derived sizes, by the choice, the flag or the absent input that determines them."""
    meanings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def shape(axes: str) -> str:
        """Returns the shape as in C: [rows][columns]."""
        if not axes or axes == "...":
            return ""
        forms = [form.split(",") for form in axes.split("|")]
        return " or ".join("".join(f"[{a.strip()}]" for a in form) for form in forms)

    def text(self, name: str) -> str:
        numbers = ", ".join(f"{i} {c}" for i, c in enumerate(self.choices.get(name, ()), start=1))
        start = self.shape(self.inputs.get(name, "")) or (f"{numbers}." if numbers else "")
        if name in self.optional:
            start += " Optional."
        return f"{start} {self.meanings.get(name, '')}"

    def size(self, name: str) -> str:
        """Describes a size by the arrays that have it, and by what determines it."""
        places: dict[str, list[str]] = {}
        for array, axes in {**self.inputs, "y": self.output}.items():
            lengths = [axis.strip() for axis in axes.partition("|")[0].split(",")]
            for number, length in enumerate(lengths, start=1):
                if name in re.findall(r"\w+", length):
                    last = {1: "elements", 2: "columns"}.get(len(lengths), "last axis")
                    place = last if number == len(lengths) else f"axis {number}"
                    place = "rows" if number == 1 < len(lengths) else place
                    text = f"{place} of" if length == name else f"in {length}, the {place} of"
                    places.setdefault(text, []).append(array)
        plain = [text for text in places if not text.startswith("in ")] or [*places]
        found = [f"{text} {', '.join(places[text])}" for text in plain]
        for key, sizes in self.where.items():
            if name in sizes:
                found.append(f"{sizes[name]} {self.condition(key)}")
        return f"Size: {'; '.join(found)}."

    def condition(self, key: str) -> str:
        """Describes when sizes follow from a choice, a flag or an absent input."""
        plain = key.removeprefix("no ")
        if plain in self.inputs:
            return f"without {plain}"
        if plain in self.options:
            return f"if {plain} is {int(plain == key)}"
        ((option, number),) = (
            (option, 1 + words.index(key)) for option, words in self.choices.items() if key in words
        )
        return f"if {option} is {number}"


def read_declaration(folder: Path, name: str, blocks: dict[str, str]) -> Declaration | None:
    """Reads the declaration of an operator, if any, with texts for references to blocks."""
    file = folder / f"{name}.py"
    if not file.is_file():
        return None
    declaration = Declaration(name)
    if name == "elementwise":
        return declaration
    signature = Signature.read(file)
    declaration.inputs = {i.name: text_of(i.forms) for i in signature.inputs.values()}
    declaration.output = text_of([signature.output])
    further = {"alpha": signature.attention, "kept": signature.keeps}
    declaration.further = {name: text_of([s]) for name, s in further.items() if s}
    declaration.options = [*signature.options, *signature.indexed]
    declaration.choices = {
        o.name: [*o.choices] for o in signature.options.values() if o.kind is str
    }
    declaration.optional = {i.name for i in signature.inputs.values() if i.optional}
    declaration.optional |= signature.indexed.keys()
    declaration.where = {
        key: {name: size.text for name, size in sizes.items()}
        for key, sizes in signature.where.items()
    }
    for argument, text in parameters(docstring(file)).items():
        declaration.meanings[argument] = spell_out(text, blocks).replace("``", "")
    return declaration


def text_of(forms: Iterable[Shape]) -> str:
    return "|".join(", ".join(size.text for size in shape) for shape in forms)


def docstring(file: Path) -> str:
    """Return the docstring of the function that a file is named for."""
    functions = (n for n in ast.parse(file.read_text()).body if isinstance(n, ast.FunctionDef))
    return next(ast.get_docstring(f) or "" for f in functions if f.name == file.stem)


def spell_out(text: str, blocks: dict[str, str]) -> str:
    """Replaces references to Python's documentation of a block by the order inside the block.

    Removes other sentences about functions of Python.
    """
    text = re.sub(r"[,.]? [Ss]ee `pyops\.blocks\.(\w+)`", lambda m: f": {blocks[m[1]]}", text)
    return re.sub(r"[^.]*`pyops\.blocks\.\w+`[^.]*\.", "", text)


def read_blocks(file: Path) -> dict[str, str]:
    """Returns the order inside each parameter block and the shapes of its parts, by packer.

    In C the columns of a matrix (rows, columns) are stored side by side.
    """
    found = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("pack_"):
            doc = ast.get_docstring(node) or ""
            order = re.search(r"^Returns\n-+\n.*\n((?: .*\n)+)", doc, re.MULTILINE)
            if order is None:
                raise SystemExit(f"{node.name}: no order of its parts")
            parts = re.findall(
                r"^(\w[\w, ]*) : (?:array, shape|sequence of arrays, shapes) (\(.*\))",
                doc,
                re.MULTILINE,
            )
            texts = parameters(doc)
            lines = [
                f"{names} {shape}" + (f", {text[0].lower()}{text[1:]}".rstrip(".") if text else "")
                for names, shape in parts
                for text in [texts.get(names.split(", ")[0], "")]
            ]
            found[node.name] = f"{' '.join(order[1].split())} Parts: {'; '.join(lines)}"
    return found


def parameters(doc: str) -> dict[str, str]:
    """Returns the texts of the Parameters section of a numpydoc docstring, by name."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    found = {}
    for match in re.finditer(
        r"^(\S.*?) : .*\n((?:[ ].*\n?|\n)*)", section[1] if section else "", re.M
    ):
        for name in match[1].split(", "):
            found[name] = " ".join(textwrap.dedent(match[2]).split())
    return found
