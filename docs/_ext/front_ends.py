"""Writes the pages of modules that import PyTorch, JAX or CuPy, from their sources.

The build needs none of them: docstrings and signatures are read from the syntax trees, those of
functions that are made at run time from these.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from docstrings import Docstring, parameters, title, write_changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "frameworks"
MODULES = (
    "pyops.torch",
    "pyops.torch.nn",
    "pyops.torch.atoms",
    "pyops.ase",
    "pyops.jax",
    "pyops.cuda",
    "pyops.compat.pylibcugraphops",
    "pyops.compat.pylibcugraphops.operators",
    "pyops.compat.pylibcugraphops.dimenet",
    "pyops.compat.pylibcugraphops.pytorch",
    "pyops.compat.pylibcugraphops.pytorch.operators",
)

NUMPY = "pyops.compat.pylibcugraphops.operators", "pyops.compat.pylibcugraphops.dimenet"
"""Modules that need no framework, so that they can be imported."""


def source(module: str) -> Path:
    """Return the file of a module."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def tree(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(source(module).read_text())


def public(module: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a module offers to users, each with the module that defines it."""
    package = source(module).name == "__init__.py"
    for node in tree(module).body:
        if package and isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            defining = f"{module}.{node.module}"
            yield from ((a.name, defining) for a in node.names if a.asname == a.name)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_":
            yield node.name, module
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):  # made by a call
            names = (t.id for t in node.targets if isinstance(t, ast.Name) and t.id[0] != "_")
            yield from ((name, module) for name in names if name.islower())


def documented(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return the docstring; of one that is put together, its longest part."""
    if found := ast.get_docstring(node):
        return found
    parts = [
        n.value
        for a in node.body
        if isinstance(a, ast.Assign) and ast.unparse(a.targets[0]) == "__doc__"
        for n in ast.walk(a)
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    return max(parts, key=len, default="")


def call(node: ast.FunctionDef) -> str:
    """Return the parameters without annotations and without self."""
    for a in ast.walk(node.args):
        if isinstance(a, ast.arg):
            a.annotation = None
    text = ast.unparse(node.args)
    return f"({text.removeprefix('self').removeprefix(', ')})"


def is_property(node: ast.FunctionDef) -> bool:
    """Return whether a method is read as an attribute."""
    return any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


def described(name: str, defining: str) -> str:
    """Return the entry of a class, a function or a constant."""
    node = next((n for n in tree(defining).body if getattr(n, "name", "") == name), None)
    kind, methods = "function", {}
    if isinstance(node, ast.ClassDef):
        kind, doc = "class", documented(node)
        methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
        constructed = "made by" not in Docstring(doc).summary
        signature = call(methods["__init__"]) if constructed and "__init__" in methods else ""
    elif isinstance(node, ast.FunctionDef):
        doc, signature = documented(node), call(node)
    elif defining.startswith(NUMPY):  # made at run time
        made = getattr(importlib.import_module(defining), name)
        doc, signature = made.__doc__, parameters(inspect.signature(made))
    else:
        return f".. py:data:: {name}\n\n"
    text = f".. py:{kind}:: {name}{signature}\n\n"
    text += indent(Docstring(doc).markup(), "   ")
    for method, found in methods.items():
        if method[0] != "_" and ast.get_docstring(found):
            listed = (
                f"property:: {method}" if is_property(found) else f"method:: {method}{call(found)}"
            )
            text += f"   .. py:{listed}\n\n"
            text += indent(Docstring(documented(found)).markup(), "      ")
    return text


def page(module: str) -> str:
    """Return the page of a module."""
    text = title(module) + f".. py:module:: {module}\n\n"
    text += (ast.get_docstring(tree(module)) or "") + "\n\n"
    if module.startswith("pyops.compat.pylibcugraphops"):
        text += ":doc:`/guide/pylibcugraphops` has examples, and what the arrays hold.\n\n"
    if module in ("pyops.torch", "pyops.jax"):
        text += "The operators are listed in :doc:`../operators/index`; the page of each has its "
        text += f"``{module}`` function.\n\n"
    return text + "".join(described(*found) for found in public(module))


def write(folder: Path = FOLDER) -> None:
    """Write all pages."""
    write_changed(folder, {module: page(module) for module in MODULES})


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", lambda _: write())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
