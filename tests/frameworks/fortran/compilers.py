"""Builds of the Fortran API from source by any compiler, against the library as installed."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyops.__main__
from pyops import _functions, _schema

from ... import ROOT
from ...mutants.fault_sites import KERNELS, OPERATORS

PROGRAMS = ROOT / "tests" / "frameworks" / "fortran"
FORTRAN = ROOT / "fortran"
COMPILERS = {
    "gfortran": "-std=f2018 -g -fcheck=all -fsanitize=address -Wall -Wextra -Werror=unused"
    " -ffpe-trap=invalid,zero,overflow",
    "flang-22": "-g -O1",
}

# fypp, which knows no packages, also reads the tables of the tests.
sys.modules |= {"_functions": _functions, "_schema": _schema}
sys.path[:0] = [str(FORTRAN), str(PROGRAMS)]
cases = importlib.import_module("cases")
del sys.path[:2]


def words(file, name):
    """Return the words of a list in a build file."""
    listed = re.search(rf"^{name} = \[(.*?)\]", (ROOT / file).read_text(), re.DOTALL | re.MULTILINE)
    return re.findall(r"'(\w+)'", listed[1])


def uses(text):
    """Return the modules of this library that a source uses."""
    return re.findall(r"^ *use (pyops_\w+)", text, re.MULTILINE)


def command(*arguments, **options):
    done = subprocess.run(
        [str(a) for a in arguments], capture_output=True, text=True, timeout=600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Sources:
    """Generated sources of the nodes in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.operators = OPERATORS
        lists = ("foundation", "compounds", "models")
        foundation, compounds, models = (words("fortran/meson.build", name) for name in lists)
        self.names = [*foundation, *self.operators, *compounds, "public_module", *models]
        templates = {path.stem: path for path in (FORTRAN / "nodes").rglob("*.fypp")}
        for name in self.names:
            template = templates.get(name, templates["derived"])
            before = sys.executable, FORTRAN / "expand_both.py"
            self.expand(template, folder / f"{name}.f90", before, OPERATOR=name)

    def whole(self):
        """Return all sources of the library in order of dependency."""
        folder = self.folder / "whole"
        folder.mkdir()
        free = words("fortran/meson.build", "kind_free")
        for name in free:
            self.expand(KERNELS[name], folder / f"{name}.f90")
        for name in KERNELS.keys() - {*free}:
            half = ("bf16",) if name in words("fortran/meson.build", "half") else ()
            for kind in "r4", "r8", *half:
                self.expand_kernel(name, kind, folder)
        waiting = {path: path.read_text() for path in sorted(folder.glob("*.f90"))}
        known: set[str] = set()
        while waiting:
            path = next(p for p, used in waiting.items() if known.issuperset(uses(used)))
            known |= set(re.findall(r"^module (\w+)", waiting.pop(path), re.MULTILINE))
            yield path
        yield from (self.folder / f"{name}.f90" for name in self.names)

    def expand_kernel(self, name, kind, folder):
        """Generate the source of a kernel for a real kind in a folder."""
        free, half = (words("fortran/meson.build", n) for n in ("kind_free", "half"))
        modules = f"{','.join(free)}/{','.join(half)}"
        before = sys.executable, FORTRAN / "expand.py", kind, modules
        self.expand(KERNELS[name], folder / f"{name}_{kind}.f90", before, VECTOR=16)

    def expand(self, template, target, before=(), **definitions):
        definitions = {"OPERATORS": ",".join(self.operators), **definitions}
        values = ((k, v if isinstance(v, int) else f'"{v}"') for k, v in definitions.items())
        command(
            *before,
            Path(sys.executable).parent / "fypp",
            *(f"-D{name}={value}" for name, value in values),
            *("-I", FORTRAN, "-I", FORTRAN / "nodes", "-M", FORTRAN, "-m", "signatures"),
            *("-m", "model_calls"),
            *("-M", ROOT / "pyops", "-m", "_functions", "-m", "_message_statistics"),
            *("-M", PROGRAMS, "-m", "cases"),
            *(template, target),
        )


class Build:
    """Build of the nodes by one compiler."""

    flags: tuple[str, ...] = ()

    def __init__(self, compiler, sources, folder):
        self.compiler, self.sources, self.folder = compiler, sources, folder
        self.flags = self.flags or COMPILERS[compiler].split()
        self.objects = [self.compile(source) for source in self.listed()]
        self.library = self.libraries()

    def listed(self):
        """Return the sources to compile."""
        return [self.sources.folder / f"{name}.f90" for name in self.sources.names]

    def libraries(self):
        """Return what programs link: the library as installed."""
        library = Path(pyops.__main__.library())
        return [library, f"-Wl,-rpath,{library.parent}"]

    def compile(self, source, flags=()):
        target = (
            self.folder / f"{source.parent.name}_{source.stem}.o"
        )  # kernels and nodes share names
        command(self.compiler, *self.flags, *flags, "-c", source, "-o", target, cwd=self.folder)
        return target

    def link(self, *sources, flags=()):
        """Link a program of some sources with additional flags, named after the last source."""
        objects = [self.compile(source, flags) for source in sources]
        program = self.folder / sources[-1].stem
        command(
            *(self.compiler, *self.flags, *self.objects, *objects, *self.library, "-o", program)
        )
        return program

    def run(self, *sources, flags=()):
        """Build a program and run it in the folder of the build."""
        # Without memory for absurd sizes, allocations fail as they do without a sanitizer.
        env = os.environ | {"ASAN_OPTIONS": "allocator_may_return_null=1"}
        return command(self.link(*sources, flags=flags), cwd=self.folder, env=env)


class Whole(Build):
    """Build of nodes and kernels by one compiler."""

    flags = ("-O2", "-fopenmp")

    def listed(self):
        return [*self.sources.whole()]

    def libraries(self):
        """Return the objects that are not Fortran."""
        targets = []
        for name in "memory", "prefetch", "threads":  # the fourth needs an option of the linker
            source = FORTRAN / "runtime" / f"{name}.c"
            targets.append(self.folder / f"{name}_c.o")
            command("cc", "-O2", "-c", source, "-o", targets[-1])
        return targets


class Installed(Build):
    """Build without sources: modules and library as reported by `python -m pyops --flags`."""

    flags = ("-g", "-O1", "-fcheck=all", *pyops.__main__.flags())

    def __init__(self, folder):
        super().__init__("gfortran", None, folder)

    def listed(self):
        return []

    def libraries(self):
        return self.flags


def available():
    return [name for name in COMPILERS if shutil.which(name)]
