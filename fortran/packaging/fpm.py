"""Write a package for fpm, the Fortran package manager, with all sources expanded: fpm.py FOLDER

It needs neither fypp nor Python; other build systems may take its sources as well.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORTRAN = ROOT / "fortran"
VECTORS = 16, 32, 64

MANIFEST = """\
name = "pyops"
version = "{version}"
license = "BSD-3-Clause"
description = "Differentiable graph and neural-operator kernels"

[library]
source-dir = "src"
include-dir = "include"

[dependencies]
openmp = "*"

[fortran]
implicit-typing = false
implicit-external = false
source-form = "free"
"""
README = """\
# pyops {version} for fpm

    fpm run --example gno_conv --profile release --flag "{flags}"

In the manifest of a project: `pyops = {{ path = "..." }}`. `-DPYOPS_VECTOR=` is the length of the
vectors in bytes: 16, 32 (AVX2) or 64 (AVX-512). The header for C is in include/.
"""
FLAGS = (
    "-O3 -march=native -fno-math-errno -fno-trapping-math -fno-version-loops-for-strides "
    "-DPYOPS_VECTOR=32"
)
TILE = """\
#ifndef PYOPS_VECTOR
#define PYOPS_VECTOR 16
#endif
module pyops_tile
{branches}
#endif
end module
"""


def version() -> str:
    found = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())
    assert found
    return found[1]


def expand(source: Path, vector: int = 16) -> str:
    command = ["fypp", f"-DVECTOR={vector}", "-I", FORTRAN, "-M", ROOT / "pyops"]
    return subprocess.check_output([*command, "-m", "_functions", source], text=True)


def write_sources(folder: Path) -> list[Path]:
    """One file a module; that of the tile chooses between the vectors."""
    folder.mkdir(parents=True)
    for source in sorted([*FORTRAN.rglob("*.fypp"), *FORTRAN.rglob("*.f90")]):
        if not re.search(r"^(sub)?module ", source.read_text(), re.MULTILINE):
            continue
        if source.stem == "tile":
            write_tile(source, folder)
        else:
            (folder / f"{source.stem}.f90").write_text(expand(source))
    return sorted(folder.glob("*.f90"))


def write_tile(source: Path, folder: Path) -> None:
    branches = []
    for vector in VECTORS:
        text = expand(source, vector)
        body = re.sub(r"\A\s*module \w+\n|\nend module\s*\Z", "", text)
        (folder / f"tile{vector}.inc").write_text(body + "\n")
        word = "if" if vector == VECTORS[0] else "elif"
        branches.append(f'#{word} PYOPS_VECTOR == {vector}\n#include "tile{vector}.inc"')
    (folder / "tile.F90").write_text(TILE.format(branches="\n".join(branches)))


def write_package(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    sources = write_sources(folder / "src")
    (folder / "include").mkdir()
    header = folder / "include" / "pyops.h"
    write = [sys.executable, FORTRAN / "header" / "write.py", version(), header, ROOT / "pyops"]
    subprocess.check_call([*write, *sources])
    (folder / "example").mkdir()
    for example in (ROOT / "examples" / "fortran").glob("*.[cf]*"):
        shutil.copy(example, folder / "example")
    (folder / "fpm.toml").write_text(MANIFEST.format(version=version()))
    (folder / "README.md").write_text(README.format(version=version(), flags=FLAGS))
    shutil.copy(ROOT / "LICENSE", folder)


if __name__ == "__main__":
    write_package(Path(sys.argv[1]))
