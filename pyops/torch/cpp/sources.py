"""Sources of the C++ library, and the commands that build it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import torch

from ... import _schema, ops
from ...__main__ import flags
from ..._schema.calls import called_kernels, write_calls
from .tables import CALLED, operators, write_tables

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
    own = flags()
    at = own.index("-L")
    includes, libraries = own[:at], own[at:]
    compilers = {"CC": "cc", "CXX": "c++"}
    c, cpp = (shlex.split(os.environ.get(name, usual)) for name, usual in compilers.items())
    root = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    include = "-isystem", str(root / "include")
    options = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", abi, *include]
    lib = str(root / "lib")
    linked = ["-L", lib, "-Xlinker", "-rpath", "-Xlinker", lib, "-ltorch_cpu", "-lc10"]
    for command in (
        [*c, "-O1", "-fPIC", "-c", "calls.c", *includes],
        [*cpp, *options, "-c", "library.cpp", *includes],
        [*cpp, "-shared", "-o", LIBRARY, "library.o", "calls.o", *libraries, *linked],
    ):
        subprocess.run(command, cwd=folder, check=True)
    return Path(folder) / LIBRARY
