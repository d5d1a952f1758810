"""Docstrings of public objects are complete, and the examples of all docstrings run."""

import ast
import importlib
import re

import pytest

import pyops

from .. import ROOT
from ..support import site
from ..support.pages import Server

if not site.DOCS.exists():
    pytest.skip("the folder of the documentation is not there", allow_module_level=True)
docstrings, front_ends = site.load("docstrings"), site.load("front_ends")
MODULES = "pyops", "pyops.blocks", "pyops.distributed", *front_ends.MODULES
PROTOCOLS = {"tree_flatten", "tree_unflatten"}
"""Methods for a framework, which no user calls."""
OBJECTS = [(module, *found) for module in MODULES for found in front_ends.public(module)]
OBJECTS += [("pyops.testing", name, "pyops.testing") for name in pyops.testing.__all__]
DEFINED = [
    (f"{module}.{name}", node)
    for module, name, defining in OBJECTS
    for node in front_ends.tree(defining).body
    if getattr(node, "name", "") == name
]
"""Classes and functions that stand in a source as such: others are made at run time."""


def callables():
    """Yield the name, the tree and the docstring of functions, constructors and methods.

    And whether it needs sections: the calls of pylibcugraphops and the methods of layers have the
    arguments and results of their originals.
    """
    for full, node in DEFINED:
        doc, original = front_ends.documented(node), full.startswith("pyops.compat")
        if isinstance(node, ast.FunctionDef):
            yield full, node, doc, not original
            continue
        methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
        made_by_others = "made by" in docstrings.Docstring(doc).summary
        if "__init__" in methods and not made_by_others:
            yield full, methods["__init__"], doc, not original
        original |= full.startswith("pyops.torch.nn")
        for name, method in methods.items():
            if name[0] != "_" and name not in PROTOCOLS:
                own = not original and not front_ends.is_property(method)
                yield f"{full}.{name}", method, ast.get_docstring(method) or "", own


CALLABLES = {full: rest for full, *rest in callables()}


def test_objects_are_found():
    """Of each kind of module; the operators are in test_docs.py."""
    assert {"pyops.Graph.from_cells", "pyops.torch.nn.GATConv", "pyops.jax.distribute"} <= {
        *CALLABLES
    }
    assert {"pyops.distributed.partition", "pyops.compat.pylibcugraphops.make_csc"} <= {*CALLABLES}


@pytest.mark.parametrize(("full", "node"), DEFINED, ids=[full for full, _ in DEFINED])
def test_class_or_function(full, node):
    assert front_ends.documented(node)


@pytest.mark.parametrize("full", CALLABLES)
def test_sections(full):
    """Parameters have a section; the result has one, or is what the first sentence returns."""
    node, doc, needs_sections = CALLABLES[full]
    assert doc
    parsed = docstrings.Docstring(doc)
    refers = not parsed.sections and re.search(r"[Ss]ee `[\w.]+`", doc)
    if refers or not needs_sections:
        return
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    entries = ", ".join(names for names, _, _ in parsed.entries("Parameters")).split(", ")
    assert {a.arg for a in arguments} - {"self", "cls"} <= {*entries}
    returns = ast.unparse(node.returns) if node.returns else "None"
    if returns not in ("None", "NoReturn"):
        found = {"Returns", "Yields"} & parsed.sections.keys()
        assert found or parsed.summary.startswith("Return ")


MADE = [(m, n) for m, n, _ in OBJECTS if m in front_ends.NUMPY]


@pytest.mark.parametrize(("module", "name"), MADE, ids=[".".join(one) for one in MADE])
def test_calls_that_are_made_at_run_time(module, name):
    assert getattr(importlib.import_module(module), name).__doc__


def examples():
    """Yield a name and the section of examples of each docstring that has one."""
    for path in sorted((ROOT / "pyops").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if ">>>" in text else ():
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                shown = docstrings.Docstring(ast.get_docstring(node) or "").sections
                if ">>>" in shown.get("Examples", ""):
                    yield f"{path.relative_to(ROOT)}::{node.name}", shown["Examples"]


EXAMPLES = dict(examples())


def test_examples_are_found():
    """All of them, in sections of their own."""
    texts = [path.read_text() for path in (ROOT / "pyops").rglob("*.py")]
    prompts = sum(len(re.findall("^ *>>> ", text, re.MULTILINE)) for text in texts)
    assert prompts == sum(text.count(">>> ") for text in EXAMPLES.values()) > 0


@pytest.fixture(scope="module")
def server():
    two = "--xla_force_host_platform_device_count=2"
    server = Server("pyops.torch", "torch_geometric.nn", XLA_FLAGS=two)
    yield server
    server.close()


@pytest.mark.bare
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, server, tmp_path):
    """They run as blocks of a page do, after `import numpy as np, pyops`."""
    page = tmp_path / "page.md"
    page.write_text(f"```pycon\n>>> import numpy as np, pyops\n\n{EXAMPLES[name]}\n```\n")
    count, report = server.run(page, tmp_path)
    if not count:
        pytest.skip(report)
