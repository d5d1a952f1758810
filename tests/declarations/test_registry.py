"""Each operator has one name, which is present in every folder."""

import re
import subprocess
import sys

import pytest

import pyops
from pyops import _kernels
from pyops._call.compound import COMPOUNDS
from pyops._call.operator import OPERATORS, Operator
from pyops._schema import Signature, interfaces, procedures

from .. import ROOT
from ..mutants import fault_sites


def stems(folder, suffix):
    return {path.stem for path in (ROOT / folder).glob(f"*.{suffix}")}


NAMES = set(fault_sites.OPERATORS)
FRONT_END = {"partials"}
SHARED = FRONT_END | fault_sites.KERNELS.keys() - NAMES

PUBLIC = [op for op in vars(pyops).values() if isinstance(op, Operator)]
DIRECTORIES = {
    "kernels": lambda: fault_sites.KERNELS.keys() & NAMES,
    "compiled": lambda: set(re.findall(r"\bpyops_(\w+)_r[48]\b", " ".join(dir(_kernels)))) - SHARED,
    "declarations": lambda: stems("pyops/ops", "py") - {"__init__"},
    "table": lambda: {op.declaration for op in OPERATORS.values()},
    "public": lambda: {op.declaration for op in PUBLIC if op.name not in COMPOUNDS},
    "references": lambda: stems("tests/reference", "py") - {"__init__", "activations", "scores"},
    "cuda": lambda: stems("pyops/cuda/ops", "py") - {"__init__"},
}


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_names(directory):
    assert DIRECTORIES[directory]() == NAMES


def test_device_kernels_are_of_operators():
    listed = (ROOT / "fortran" / "device" / "meson.build").read_text()
    shared = re.findall(r"'(\w+)'", re.search(r"device_kernels = \[(.*?)\]", listed, re.DOTALL)[1])
    assert stems("fortran/device", "fypp") - {*shared, "device"} <= NAMES


@pytest.mark.parametrize("name", OPERATORS)
def test_name_of_an_operator(name):
    op = getattr(pyops, name)
    assert op is OPERATORS[name]
    assert op.name == op.__name__ == name
    assert op.__module__ == f"pyops.ops.{op.declaration}"


@pytest.mark.parametrize("name", COMPOUNDS)
def test_compounds_are_made_of_operators(name):
    op = getattr(pyops, name)
    assert op is COMPOUNDS[name]
    assert name not in NAMES
    assert {*op.parts} == {*op.signature.results}
    assert all(part is OPERATORS[part.name] for part in op.parts.values())


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("variant", ["r4", "r8"])
def test_compiled_procedures(name, variant):
    """Those of an operator, and their arguments, are those of its schema."""
    compiled = getattr(_kernels, f"pyops_{name}_{variant}")
    found = [procedure for procedure in dir(compiled) if not procedure.startswith("_")]
    taken = {}
    for procedure in found:
        call, _, _ = getattr(compiled, procedure).__doc__.partition("\n")
        taken[procedure] = tuple(re.findall(r"\w+", call.partition("(")[2]))
    declared = interfaces(name, ROOT / "pyops" / "ops").values()
    assert taken == {p.name: p.parameters for p in declared}


def test_the_schema_imports_nothing_of_pyops():
    code = "import _schema, sys; assert 'pyops' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "pyops", check=True)


@pytest.mark.parametrize("name", sorted(NAMES - {"elementwise"}))
def test_declarations_read_the_same(name):
    """The build reads the source of a declaration, Python its annotations."""
    built, imported = (
        Signature.read(ROOT / "pyops" / "ops" / f"{name}.py"),
        OPERATORS[name].signature,
    )
    assert procedures(built) == procedures(imported)
    assert built.readable() == imported.readable()


def test_faults_are_drawn_from_every_template():
    """Each template belongs to one family, or is listed as one whose faults have no effect."""
    sites = [path for family in fault_sites.FAMILIES for path in fault_sites.paths(family)]
    names = [*map(fault_sites.name_of, sites), *fault_sites.NOT_SEEDED]
    folders = {"fortran"}
    folders |= {f"fortran/{path.parent.name}" for path in fault_sites.KERNELS.values()}
    every = [path for folder in folders for path in (ROOT / folder).glob("*.fypp")]
    every += (ROOT / "fortran" / "nodes").rglob("*.fypp")
    assert sorted(names) == sorted(map(fault_sites.name_of, every))


def test_every_test_is_there_that_is_left_out_of_mutants():
    left_out = [word for words in fault_sites.BLIND for word in words.split()]
    assert all([*ROOT.glob(f"tests/{word}.py")] for word in left_out)
