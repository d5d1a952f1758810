"""The reference of the documentation site has every public name."""

import re
import textwrap

import pytest

import pyops
from pyops._call.compound import COMPOUNDS, starred
from pyops._call.operator import OPERATORS

from ..support.device_libraries import header
from ..support.site import DOCS, load

EXTENSIONS = "operators", "front_ends", "c_header"
ENTRY = re.compile(r"^\.\. (?:py:|auto)(?:function|class|module):: (\S+?)(?:\(|$)", re.M)
CURRENT = re.compile(r"^\.\. (?:py:)?(?:current)?module:: (\S+)", re.M)


def entries(text):
    """Full names of the entries of a page."""
    parts = ["", "", *CURRENT.split(text)[1:]]
    parts[1] = CURRENT.split(text)[0]
    for module, body in zip(parts[::2], parts[1::2], strict=True):
        for name in ENTRY.findall(body):
            yield name if name.startswith("pyops") else f"{module}.{name}"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folder of the pages that the build of the site writes."""
    if not DOCS.exists():
        pytest.skip("the folder of the documentation is not there")
    folder = tmp_path_factory.mktemp("reference")
    for name in EXTENSIONS:
        load(name).write(folder / name)
    return folder


@pytest.fixture(scope="module")
def reference(written):
    pages = [*written.rglob("*.rst"), *(DOCS / "reference").glob("*.md")]
    return {name for page in pages for name in entries(page.read_text())}


@pytest.mark.parametrize("name", [*OPERATORS, *COMPOUNDS])
def test_page_of_an_operator(name, written, capsys):
    """The page has all sections, no empty meaning, and an example that prints what it shows."""
    text = (written / "operators" / f"{name}.rst").read_text()
    headings = re.findall(r"^(.+)\n-{3,}$", text, re.MULTILINE)
    expected = ["Inputs", "Result", "Phases", "Front ends", "Example", "Cost", "Source"]
    assert [h for h in headings if h in expected] == expected
    assert (".. math::" in text) == (name not in COMPOUNDS)
    assert re.search(r"fortran/module/pyops_\w+\.html", text)
    assert re.search(r":doc:`pyops_\w+_\* <\.\./c/\w+>`", text)
    assert re.search(r"^Time O\(.*\bMemory\s+beside\s+inputs\s+and\s+results:", text, re.M | re.S)
    rows = re.findall(r"^   \* - (.*)(?:\n     .*)*\n     -(.*)$", text, re.M)
    assert not [first for first, last in rows if not last]
    example = text.partition(".. code-block:: python\n\n")[2].partition("\n\nCost\n")[0]
    exec(textwrap.dedent(example), {})
    (shown,) = re.findall(r"print\(.*\)  # (.*)$", example, re.MULTILINE)
    assert capsys.readouterr().out.strip() == shown


def exported(package):
    """Names of `__all__`; those of the front ends of frameworks are a graph and all operators."""
    return pyops.__all__ if package == "pyops" else ["Graph", *starred()]


@pytest.mark.parametrize("package", ["pyops", "pyops.torch", "pyops.jax"])
def test_every_public_name_has_an_entry(package, reference):
    missing = [n for n in exported(package) if f"{package}.{n}" not in reference]
    assert not missing


def test_every_public_object_has_an_entry(reference):
    """Those of all modules, the operators aside; `automodule` has all of some."""
    front_ends = load("front_ends")
    modules = "pyops", "pyops.distributed", *front_ends.MODULES
    names = [f"{module}.{name}" for module in modules for name, _ in front_ends.public(module)]
    assert {"pyops.torch.nn.GATConv", "pyops.cuda.DeviceGraph", "pyops.distributed.partition"} <= {
        *names
    }
    assert not [name for name in names if name not in reference]
    members = r"automodule:: (\S+)\n +:members:"
    whole = {
        m
        for page in (DOCS / "reference").glob("*.md")
        for m in re.findall(members, page.read_text())
    }
    assert {"pyops.blocks", "pyops.testing"} <= whole


def test_every_procedure_of_the_header_has_an_entry(written):
    """The pages have all prototypes of the header, and those of operators all arguments."""
    declared = re.findall(r"^\w[\w ]*\*?(pyops_\w+)\(", header(), re.M)
    entry = r"^(?:\.\. c:function::| {15}) \w[\w ]*\*?(pyops_\w+)\((.*)\)$"
    found = []
    for page in (written / "c_header").glob("*.rst"):
        text = page.read_text()
        meanings = set(re.findall(r"^ *\* - ``(\w+)``$", text, re.M))
        for name, arguments in re.findall(entry, text, re.M):
            found.append(name)
            names = set(re.findall(r"(\w+)(?:,|$)", arguments))
            assert page.stem == "index" or names <= meanings, name
    assert sorted(found) == sorted(declared)
