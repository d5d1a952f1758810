"""README, documents and messages agree with the package; their code runs."""

import ast
import re

import pytest

from pyops._call.operator import OPERATORS

from .. import ROOT
from ..support.pages import RUN, SHOWN, STORED, Server, blocks, is_run

pytestmark = pytest.mark.bare
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
OTHERS = [
    path for folder in ("pyops", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")
]
OTHERS += [path for end in ("md", "yml") for path in (ROOT / ".github").rglob(f"*.{end}")]
OTHERS += (ROOT / "examples" / "fortran").glob("*")
INSTALLING = [
    path
    for path in [*DOCUMENTS, *TUTORIALS, *sorted(OTHERS)]
    if path.is_file() and "pip install" in path.read_text()
]
LINKING = ROOT / "docs" / "guide" / "linking.md"
"""Needs an installed library: test_prefix runs it."""
NOT_RUN = {
    "docs/guide/clusters.md": 4,
    "docs/guide/distributed.md": 2,
    "docs/guide/fortran.md": 1,
    "docs/guide/fortran_distributed.md": 2,
    "docs/guide/gpu.md": 1,
    "docs/guide/install.md": 4,
    "docs/guide/jax.md": 1,
    "docs/guide/jax_distributed.md": 1,
    "docs/guide/linking.md": 5,
    "docs/guide/torch.md": 2,
    "docs/guide/torch_cpp.md": 4,
    "docs/guide/torch_distributed.md": 3,
}
"""Number of blocks that are not run, by page: they install, need a cluster or a container."""


def name(path):
    return str(path.relative_to(ROOT))


def has_program(path):
    return any(map(is_run, blocks(path)))


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
    """Each line that installs pyops names the distribution and extras of pyproject.toml.

    Extras are quoted: zsh takes brackets outside of quotes for a pattern of file names.
    """
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for line in install_lines(path):
        assert not [word for word in line.split() if re.match(r"[\w-]+\[", word)], line
        for word in names_pyops(line):
            distribution, chosen = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?", word).groups()
            assert distribution == project["name"], line
            assert set(filter(None, (chosen or "").split(","))) <= extras, line


def test_install_lines_are_found():
    """The search finds the lines in all kinds of files."""
    for path in README, *TUTORIALS, ROOT / "pyops" / "cuda" / "_device.py":
        assert any(map(names_pyops, install_lines(path))), path


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_blocks_are_marked(path):
    """Each block has a language, and is run, stored, compared or marked as not run."""
    found = [*blocks(path)]
    for before, block in zip([None, *found], found, strict=False):
        where = f"{name(path)}:{block.line}: {block.language!r}: {block.mark}: {block.value}"
        assert block.language in RUN | STORED | SHOWN, where
        assert block.mark in ("", "file", "output", "needs", "not run"), where
        assert bool(block.value) == (block.mark in ("file", "needs", "not run")), where
        if block.mark == "output":
            assert before, where
            assert is_run(before), where
        if block.language in STORED:
            assert block.mark in ("file", "not run"), where


def test_blocks_that_do_not_run():
    """All others do."""
    marked = {name(path): sum(b.mark == "not run" for b in blocks(path)) for path in DOCUMENTS}
    assert {page: number for page, number in marked.items() if number} == NOT_RUN


@pytest.fixture(scope="module")
def server():
    server = Server("pyops.torch", "torch_geometric.nn")
    yield server
    server.close()


@pytest.mark.parametrize(
    "path", [p for p in DOCUMENTS if p != LINKING and has_program(p)], ids=name
)
def test_python_blocks(path, server, tmp_path):
    """Each block of the page runs after those before it, and prints what the page shows."""
    count, report = server.run(path, tmp_path)
    if not count:
        pytest.skip(report)


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


def test_statuses_are_listed():
    """The page of errors has the statuses of Fortran and C, with their values."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| (-?\d+) \| .*\|$", page, re.MULTILINE))
    module = (ROOT / "fortran" / "nodes" / "errors.fypp").read_text()
    lines = re.findall(r"^  integer\(c_int32_t\), parameter, public :: (.*)$", module, re.MULTILINE)
    found = dict(re.findall(r"(\w+) = (-?\d+)", " ".join(lines)))
    header = (ROOT / "fortran" / "header" / "write.py").read_text()
    found |= dict(re.findall(r"#define (PYOPS_[A-Z_]+) \((-\d+)\)", header))
    assert listed == found
    assert "interrupted" in found


def test_device_operators_are_listed():
    """The guide of Fortran has the operators for OpenACC and OpenMP target, no others."""
    page = (ROOT / "docs" / "guide" / "fortran.md").read_text()
    section = page.partition("## On a GPU, by OpenACC")[2]
    names = {path.stem for path in (ROOT / "pyops" / "ops").glob("*.py")}
    found = {path.stem for path in (ROOT / "fortran" / "device").glob("*.fypp")} & names
    assert {name for name in names if f"`{name}`" in section} == found
    assert "gno_conv" in found


def test_supported_frameworks():
    """The guide has the oldest versions of PyTorch and JAX that pyproject.toml allows."""
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "guide" / "install.md").read_text()
    for name, package in ("PyTorch", "torch"), ("JAX", "jax"):
        (requirement,) = project["optional-dependencies"][package]
        assert f"{name} {requirement.removeprefix(f'{package}>=')} and newer" in page
