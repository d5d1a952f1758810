"""README, documents and messages agree with the package."""

import ast
import re

import pytest

from .. import ROOT

pytestmark = pytest.mark.bare
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDES]
SOURCES = sorted((ROOT / "pyops").rglob("*.py"))
INSTALLING = [path for path in DOCUMENTS + SOURCES if "pip install" in path.read_text()]


def strings(source):
    """Yield the string literals of a module; fields of formatted ones are left out."""
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
        yield "".join(texts)


def install_lines(path):
    """Return the arguments of each `pip install` in a document or in the strings of a module."""
    text = path.read_text()
    if path.suffix == ".py":
        text = "\n".join(strings(text))
    return re.findall(r"pip install +([^`\n#]+)", text)


def names_pyops(line):
    return [word for word in line.replace("'", "").replace('"', "").split() if "pyops" in word]


@pytest.mark.parametrize("path", INSTALLING, ids=lambda p: str(p.relative_to(ROOT)))
def test_install_lines(path):
    """Each line that installs pyops names the distribution and extras of pyproject.toml."""
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for line in install_lines(path):
        for word in names_pyops(line):
            name, chosen = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?", word).groups()
            assert name == project["name"], line
            assert set(filter(None, (chosen or "").split(","))) <= extras, line


def test_install_lines_are_found():
    """The search finds the lines in both kinds of files."""
    for path in ROOT / "README.md", ROOT / "pyops" / "cuda" / "_device.py":
        assert any(map(names_pyops, install_lines(path))), path
