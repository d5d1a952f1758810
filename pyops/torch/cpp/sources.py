"""Sources of the C++ library, and the commands that build it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ... import _cache, _schema, ops
from ...__main__ import flags
from ..._schema.calls import called_kernels, write_calls
from .._native import file_name
from .tables import CALLED, operators, write_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARY = "libpyops_torch.so"


def write_sources(folder: str | Path) -> None:
    """Write all sources, with a CMakeLists.txt, to a folder, which is made if there is none."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    own, declarations = Path(__file__).parent, Path(ops.__file__).parent
    calls = Path(_schema.__file__).parent / "calls.h"
    for file in own / "library.cpp", own / "CMakeLists.txt", *own.glob("*.h"), calls:
        shutil.copy(file, target)
    (target / "tables.h").write_text(write_tables(declarations))
    kernels = called_kernels(operators(declarations), declarations, CALLED)
    (target / "calls.c").write_text(write_calls(kernels))


def build(folder: str | Path) -> Path:
    """Write the sources, build the library beside them and return its path.

    The compilers are those of the variables ``CC`` and ``CXX``, by default ``cc`` and ``c++``. The
    library is linked to the installed PyTorch and pyops.
    """
    write_sources(folder)
    return _compile("library.cpp", Path(folder), LIBRARY)


def build_for_python() -> Path:
    """Build the kernels that `pyops.torch` loads for calls of compiled functions.

    Returns the path of the library. It is in the cache, and loaded by every process that imports
    `pyops.torch` later, with the same PyTorch and pyops. Nothing is built if it is there.
    """
    found = _cache.folder() / file_name()
    if found.exists():
        return found
    with tempfile.TemporaryDirectory() as folder:
        write_sources(folder)
        shutil.copy(Path(__file__).with_name("python.cpp"), folder)
        include = "-isystem", sysconfig.get_path("include")
        built = _compile("python.cpp", Path(folder), LIBRARY, include)
        return _cache.write(file_name(), built.read_bytes())


def _compile(source: str, folder: Path, library: str, more: Sequence[str] = ()) -> Path:
    """Compile a source in a folder of all sources, and link it to PyTorch and pyops."""
    own = flags()
    at = own.index("-L")
    includes, libraries = own[:at], own[at:]
    compilers = {"CC": "cc", "CXX": "c++"}
    c, cpp = (shlex.split(os.environ.get(name, usual)) for name, usual in compilers.items())
    root = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    include = "-isystem", str(root / "include")
    options = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", abi, *include, *more]
    lib = str(root / "lib")
    linked = ["-L", lib, "-Xlinker", "-rpath", "-Xlinker", lib, "-ltorch_cpu", "-lc10"]
    for command in (
        [*c, "-O1", "-fPIC", "-c", "calls.c", *includes],
        [*cpp, *options, "-c", source, "-o", "library.o", *includes],
        [*cpp, "-shared", "-o", library, "library.o", "calls.o", *libraries, *linked],
    ):
        subprocess.run(command, cwd=folder, check=True)
    return folder / library
