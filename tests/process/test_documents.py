"""README, documents and messages agree with the package."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

import pyops.__main__
from pyops._call.operator import OPERATORS

from .. import ROOT

pytestmark = pytest.mark.bare
README = ROOT / "README.md"
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "pyops").rglob("*.py"))
INSTALLING = [path for path in DOCUMENTS + SOURCES if "pip install" in path.read_text()]
FRAMEWORKS = "torch", "jax", "cupy"


def name(path):
    return str(path.relative_to(ROOT))


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


@pytest.mark.parametrize("path", INSTALLING, ids=name)
def test_install_lines(path):
    """Each line that installs pyops names the distribution and extras of pyproject.toml."""
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for line in install_lines(path):
        for word in names_pyops(line):
            distribution, chosen = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?", word).groups()
            assert distribution == project["name"], line
            assert set(filter(None, (chosen or "").split(","))) <= extras, line


def test_install_lines_are_found():
    """The search finds the lines in both kinds of files."""
    for path in README, ROOT / "pyops" / "cuda" / "_device.py":
        assert any(map(names_pyops, install_lines(path))), path


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def frameworks(block):
    """Return the frameworks that a block imports."""
    imports = " ".join(re.findall(r"^(?:import|from) (.*)$", block, re.MULTILINE))
    return {f for f in FRAMEWORKS if re.search(rf"(?<![.\w]){f}\b", imports)}


def programs():
    """Yield the blocks of each document that run together: NumPy alone, or with one framework."""
    for path in README, *GUIDES:
        found = [(block, frameworks(block)) for block in blocks(path, "python")]
        used = [f for f in FRAMEWORKS if any(f in needs for _, needs in found)]
        plain = [None] if any(not needs for _, needs in found) else []
        for framework in plain + used:
            code = "\n".join(block for block, needs in found if needs <= {framework})
            yield pytest.param(framework, code, id=f"{name(path)}-{framework or 'numpy'}")


def needs_device(framework):
    """Skip if there is no framework, or no device for it."""
    if framework and not importlib.util.find_spec(framework):
        pytest.skip(f"there is no {framework}")
    if framework == "cupy":
        try:
            pytest.importorskip("cupy").cuda.runtime.getDeviceCount()
        except Exception as error:  # of several types, by what is missing
            pytest.skip(f"no device: {error}")


@pytest.mark.parametrize(("framework", "code"), list(programs()))
def test_python_blocks(framework, code, tmp_path):
    """Each block runs after those before it, and prints the values in its comments."""
    needs_device(framework)
    expected = re.findall(r"^print\(.*\) +# (.*)$", code, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("number", range(len(blocks(README, "fortran"))))
def test_fortran_blocks(number, tmp_path):
    """The program compiles and runs."""
    compiler = os.environ.get("FC", "gfortran")
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    (tmp_path / "program.f90").write_text(blocks(README, "fortran")[number])
    command = [compiler, "program.f90", *pyops.__main__.flags(), "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "program"], check=True)


@pytest.mark.parametrize("path", [README, ROOT / "ARCHITECTURE.md", *DOCUMENTS[1:]], ids=name)
def test_links(path):
    """Files that a document links to exist, as do the tasks of `run` that it names.

    Pages of the reference (.rst) are written with the site, whose build checks these links.
    """
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"^\[.*\]: (\S+)$", text, re.M):
        assert target.endswith(".rst") or (path.parent / target).exists(), target
    tasks = set(re.findall(r"^([a-z-]+)(?: \|.*)?\)", (ROOT / "run").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?<!\w)\./run ([a-z-]+)", text)) <= tasks


def test_operators_are_listed():
    """README or the guide of Python names every operator; README is of readable length."""
    text = README.read_text() + (ROOT / "docs" / "guide" / "python.md").read_text()
    for operator in OPERATORS:
        assert f"`{operator}`" in text, operator
    assert len(README.read_text().splitlines()) <= 150
