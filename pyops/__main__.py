"""`python -m pyops`: shows what is installed and checks derivatives numerically.

`python -m pyops --flags`: what a Fortran or C compiler needs to use the library in this package,
for a shell's `$(...)`. `--cmakedir`, `--pkgconfigdir`: directories of its files for build systems.
"""

from __future__ import annotations

import argparse
import importlib.resources
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import Graph, __version__, _kernels, get_num_threads, testing
from ._call.operator import OPERATORS, Operator
from ._schema import ANY

if TYPE_CHECKING:
    from ._call.types import Values

_SIZES = {
    "num_src": 12,
    "num_dst": 10,
    "num_edges": 60,
    "num_entries": 60,
    "columns": 3,
    "in_features": 5,
}
_SIZES |= {"out_features": 3, "hidden": 6, "dim": 2, "num_samples": 5, "points": 9, "modes": 4}
_SIZES |= {"width": 6, "heads": 2, "edge_width": 2, "out_width": 12, "x_width": 4, "depth": 2}
_SIZES |= {"max_degree": 4, "num_spherical": 4, "num_radial": 3, "exponent": 5}
_SIZES |= {
    "channels": 5,
    "middle": 3,
    "num_bases": 2,
    "src_width": 3,
    "dst_width": 5,
    "own_width": 2,
}
_OTHER_SIZE = 3


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyops", description=__doc__)
    parser.add_argument("--flags", action="store_true", help="print flags for gfortran, cc and c++")
    parser.add_argument("--cmakedir", action="store_true", help="print the value for pyops_DIR")
    parser.add_argument(
        "--pkgconfigdir", action="store_true", help="print a directory for PKG_CONFIG_PATH"
    )
    given = parser.parse_args()
    if given.flags:
        print(" ".join(map(for_shell, flags())))
    elif given.cmakedir:
        print(directory("lib", "cmake", "pyops", "pyops-config.cmake"))
    elif given.pkgconfigdir:
        print(directory("lib", "pkgconfig", "pyops.pc"))
    else:
        return check()
    return 0


def flags() -> list[str]:
    """Return compiler options for the directories of the header, Fortran modules and library."""
    files = "include/pyops.h", "include/pyops/pyops_edges.mod", "lib/libpyops.so"
    include, modules, lib = (str(installed(*file.split("/")).parent) for file in files)
    rpath = "-Xlinker", "-rpath", "-Xlinker", lib
    return ["-I", include, "-I", modules, "-L", lib, *rpath, "-lpyops"]


def installed(*parts: str) -> Path:
    """Return the path of a file of the package; an editable one keeps it in the build folder."""
    return Path(str(importlib.resources.files("pyops").joinpath(*parts)))


def directory(*parts: str) -> Path:
    """Return the directory of a file of the package whose contents are relative to its path."""
    file = installed(*parts)
    if file.parts[-len(parts) :] != parts:
        sys.exit("pyops is installed editable, where only --flags finds header and modules")
    return file.parent


def for_shell(word: str) -> str:
    """Return a word that a shell does not split in unquoted command substitution.

    Quotes have no effect there, but glob patterns do: a directory name with spaces becomes a
    pattern that no other name matches.
    """
    return re.sub(r"[\s*?\[]", lambda c: "[[:space:]]" if c[0].isspace() else f"[{c[0]}]", word)


def check() -> int:
    """Show what is installed and check the derivatives of every operator."""
    print(f"pyops {__version__}, Python {sys.version.split()[0]}, NumPy {np.__version__}")
    print(f"library  {library()}")
    print(f"threads  {get_num_threads()} of {_kernels.pyops_process.available_threads()}\n")
    print(f"{'operator':22}{'phases':36}{'derivative error':>18}")
    failed = 0
    for declaration in dict.fromkeys(operator.declaration for operator in OPERATORS.values()):
        operators = [
            operator for operator in OPERATORS.values() if operator.declaration == declaration
        ]
        try:
            error = f"{max(map(quick_check, operators)):.1e}"
        except AssertionError as problem:
            failed, error = failed + 1, str(problem)
        print(f"{declaration:22}{' '.join(operators[0].phases):36}{error:>18}")
        if [operator.name for operator in operators] != [declaration]:
            names = " ".join(operator.name for operator in operators)
            print(textwrap.indent(textwrap.fill(names, 68), "  "))
    return min(failed, 1)


def library() -> Path:
    """Return the path of the libpyops that the loader chose for this processor."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("libpyops"):
            return path
    return Path(_kernels.__file__)


def quick_check(operator: Operator) -> float:
    """Return the largest error of first and second derivatives on small random inputs."""
    rng = np.random.default_rng(0)
    signature = operator.signature
    if signature.output is ANY:
        shapes = ((4, 1, 3), (5, 1), (3,))[: len(signature.inputs)]
        drawn = [rng.uniform(0.1, 0.9, shape) for shape in shapes]
        if operator.name == "clip":
            return testing.check_gradients(operator, *drawn, min=0.0, max=1.0)
        return testing.check_gradients(operator, *drawn)
    sizes = dict.fromkeys(signature.sizes, _OTHER_SIZE) | _SIZES
    options: Values = {
        name: sizes[name] if o.is_size else o.default for name, o in signature.options.items()
    }
    for name, size in signature.follows(options, ()).items():
        sizes[name] = size.value(sizes)
    inputs: list[object] = [
        rng.standard_normal([size.value(sizes) for size in i.shape])
        for i in signature.inputs.values()
    ]
    if signature.has_graph:
        num_src, num_dst = _SIZES["num_src"], _SIZES["num_dst"]
        src, dst = (rng.integers(0, n, _SIZES["num_edges"]) for n in (num_src, num_dst))
        inputs.insert(0, Graph(src, dst, num_src, num_dst))
    return testing.check_gradients(operator, *inputs, **options)


if __name__ == "__main__":
    sys.exit(main())
