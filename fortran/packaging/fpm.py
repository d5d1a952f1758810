"""Write a package for fpm, the Fortran package manager.

    fpm.py FOLDER VERSION *.f90 *.c --include pyops.h *.f90

The package holds the expanded sources: it needs no fypp or Python, and suits any build system.
Programs include the last files.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

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

[[example]]
name = "gno_conv_c"
source-dir = "example"
main = "gno_conv.c"
link = ["m"]
"""
README = """\
# pyops {version} for fpm

    fpm run --example gno_conv --profile release --flag "{flags}"

In the manifest of a project: `pyops = {{ path = "..." }}`. `-DPYOPS_VECTOR=` is the length of the
vectors in bytes: 16, 32 (AVX2) or 64 (AVX-512). The header for C is in include/,
beside the sources that a program over the ranks of MPI includes.
"""
FLAGS = (
    "-O3 -march=native -fno-math-errno -fno-trapping-math -fno-version-loops-for-strides "
    "-DPYOPS_VECTOR=32"
)
TILE = """\
#ifndef PYOPS_VECTOR
#define PYOPS_VECTOR 16
#endif
module pyops_micro_gemm_{kind}
{branches}
#endif
end module
"""


INTERFACES = re.compile(r"^ *interface\b.*?^ *end interface", re.DOTALL | re.MULTILINE)
BINDING = re.compile(r'bind\(c, name="(\w+)"\)')


def used_modules(texts: dict[str, str]) -> dict[str, set[str]]:
    """Finds the modules whose procedures a source calls by C name; fpm would leave them out."""
    homes = {}
    for text in texts.values():
        module = re.search(r"^module (\w+)", text, re.MULTILINE)
        assert module
        homes |= dict.fromkeys(BINDING.findall(INTERFACES.sub("", text)), module[1])
    return {
        name: {
            homes[binding]
            for block in INTERFACES.findall(text)
            for binding in BINDING.findall(block)
            if binding in homes
        }
        for name, text in texts.items()
    }


def write_sources(sources: list[Path], folder: Path) -> None:
    """Writes one file per module; that of micro_gemm selects the vector length."""
    folder.mkdir(parents=True)
    for source in sources:
        if source.suffix == ".c":
            shutil.copy(source, folder)
    texts = {source.stem: source.read_text() for source in sources if source.suffix != ".c"}
    tiles: dict[str, dict[str, str]] = {}
    for name in [*texts]:
        if match := re.fullmatch(r"micro_gemm(\d+)_(\w+)", name):
            tiles.setdefault(match[2], {})[match[1]] = texts.pop(name)
    for name, modules in used_modules(texts).items():
        lines = "".join(f"  use {module}, only:\n" for module in sorted(modules))
        text = re.sub(r"^(module \w+\n)", rf"\1{lines}", texts[name], count=1, flags=re.MULTILINE)
        (folder / f"{name}.f90").write_text(text)
    for kind, vectors in tiles.items():
        branches = []
        for vector, text in vectors.items():
            body = re.sub(r"\A\s*module \w+\n|\nend module\s*\Z", "", text)
            file = f"micro_gemm{vector}_{kind}.inc"
            (folder / file).write_text(body + "\n")
            word = "elif" if branches else "if"
            branches.append(f'#{word} PYOPS_VECTOR == {vector}\n#include "{file}"')
        text = TILE.format(kind=kind, branches="\n".join(branches))
        (folder / f"micro_gemm_{kind}.F90").write_text(text)


def write_package(folder: Path, version: str, sources: list[Path], included: list[Path]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    write_sources(sources, folder / "src")
    (folder / "include").mkdir()
    for source in included:
        shutil.copy(source, folder / "include")
    (folder / "example").mkdir()
    for example in (ROOT / "examples" / "fortran").glob("*.[cf]*"):
        if example.stem != "ranks":  # needs MPI
            shutil.copy(example, folder / "example")
    (folder / "fpm.toml").write_text(MANIFEST.format(version=version))
    (folder / "README.md").write_text(README.format(version=version, flags=FLAGS))
    shutil.copy(ROOT / "LICENSE", folder)


if __name__ == "__main__":
    folder, version, *files = sys.argv[1:]
    cut = files.index("--include")
    write_package(Path(folder), version, [*map(Path, files[:cut])], [*map(Path, files[cut + 1 :])])
