"""The declarations of operators in pyops/ops, read without importing them."""

import ast
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Declaration:
    """What the docstring and the annotations of an operator say."""

    name: str
    inputs: dict[str, str] = field(default_factory=dict)
    """Shapes by name; forms parted by |."""
    options: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)
    output: str = ""
    meanings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def shape(axes: str) -> str:
        """As in C: [rows][columns]."""
        if not axes or axes == "...":
            return ""
        forms = [form.split(",") for form in axes.split("|")]
        return " or ".join("".join(f"[{a.strip()}]" for a in form) for form in forms)

    def text(self, name: str) -> str:
        numbers = ", ".join(f"{i} {c}" for i, c in enumerate(self.choices.get(name, ()), start=1))
        start = self.shape(self.inputs.get(name, "")) or (f"{numbers}." if numbers else "")
        return f"{start} {self.meanings.get(name, '')}"


def read_declaration(folder: Path, name: str) -> Declaration | None:
    """The declaration of an operator; None if there is no such file."""
    file = folder / f"{name}.py"
    if not file.is_file():
        return None
    declaration = Declaration(name)
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            declaration.output = literal_text(node.returns)
            for argument in [*node.args.posonlyargs, *node.args.args]:
                if shape := literal_text(argument.annotation):
                    declaration.inputs[argument.arg] = shape
            for argument in node.args.kwonlyargs:
                declaration.options[argument.arg] = ast.unparse(argument.annotation)
                if (kind := argument.annotation) and ast.unparse(kind).startswith("Literal["):
                    declaration.choices[argument.arg] = literals(kind)
            declaration.meanings = parameters(ast.get_docstring(node) or "")
    return declaration


def literals(annotation: ast.expr | None) -> list[str]:
    found = ast.walk(annotation) if annotation else ()
    return [n.value for n in found if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def literal_text(annotation: ast.expr | None) -> str:
    return (literals(annotation) or [""])[0]


def parameters(doc: str) -> dict[str, str]:
    """The texts of a numpydoc section."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    found = {}
    for match in re.finditer(
        r"^(\S.*?) : .*\n((?:[ ].*\n?|\n)*)", section[1] if section else "", re.M
    ):
        for name in match[1].split(", "):
            found[name] = " ".join(textwrap.dedent(match[2]).split())
    return found
