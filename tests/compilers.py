"""The Fortran face compiled from its sources, by any compiler, against the library as installed."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyops.__main__
from pyops import _functions

ROOT = Path(__file__).parents[1]
FORTRAN = ROOT / "fortran"
COMPILERS = {
    "gfortran": "-std=f2018 -g -O1 -fcheck=all -fsanitize=address -Wall -Wextra -Werror=unused",
    "flang-22": "-g -O1",
}

# The tables of the tests are also read by fypp, which knows no packages.
sys.modules["_functions"] = _functions
sys.path[:0] = [str(FORTRAN), str(ROOT / "tests" / "fortran")]
cases = importlib.import_module("cases")
del sys.path[:2]


def words(file, name):
    """The words of a list in a build file."""
    listed = re.search(rf"^{name} = \[(.*?)\]", (ROOT / file).read_text(), re.DOTALL | re.MULTILINE)
    return re.findall(r"'(\w+)'", listed[1])


def command(*arguments, **options):
    done = subprocess.run(
        [str(a) for a in arguments], capture_output=True, text=True, timeout=600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Sources:
    """The sources of the nodes, generated in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.operators = words("meson.build", "operators")
        self.names = [*words("fortran/meson.build", "foundation"), *self.operators, "face"]
        self.kernels = folder / "kernels"
        self.kernels.mkdir()
        for name in [*self.operators, "product"]:
            self.expand(FORTRAN / "kernels" / f"{name}.fypp", self.kernels / f"{name}.f90")
        for name in self.names:
            kernels = self.kernels / f"{'product' if name == 'matmul' else name}.f90"
            self.expand(FORTRAN / "nodes" / f"{name}.fypp", folder / f"{name}.f90", KERNELS=kernels)

    def expand(self, template, target, **definitions):
        definitions = {"OPERATORS": ",".join(self.operators), **definitions}
        command(
            Path(sys.executable).parent / "fypp",
            *(f'-D{name}="{value}"' for name, value in definitions.items()),
            *("-I", FORTRAN, "-I", FORTRAN / "nodes", "-M", FORTRAN, "-m", "signatures"),
            *("-M", ROOT / "pyops", "-m", "_functions"),
            *("-M", ROOT / "tests" / "fortran", "-m", "cases"),
            *(template, target),
        )


class Build:
    """The nodes as one compiler makes them."""

    def __init__(self, compiler, sources, folder):
        self.compiler, self.sources, self.folder = compiler, sources, folder
        self.flags = COMPILERS[compiler].split()
        self.objects = [self.compile(sources.folder / f"{name}.f90") for name in sources.names]

    def compile(self, source):
        target = self.folder / f"{source.stem}.o"
        command(self.compiler, *self.flags, "-c", source, "-o", target, cwd=self.folder)
        return target

    def run(self, *sources):
        """Compile a program of some sources, run it in the folder of the build."""
        objects = [self.compile(source) for source in sources]
        program = self.folder / objects[-1].stem
        library = Path(pyops.__main__.library())
        command(
            *(self.compiler, *self.flags, *self.objects, *objects, library),
            *(f"-Wl,-rpath,{library.parent}", "-o", program),
        )
        return command(program, cwd=self.folder)


def available():
    return [name for name in COMPILERS if shutil.which(name)]
