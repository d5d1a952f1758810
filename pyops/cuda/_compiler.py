"""Machine code of the CUDA sources: compiled by NVRTC on first use, then cached on disk.

CuPy's own compilation would add `-ftz=true`, which flushes subnormal numbers to zero.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import tempfile
from pathlib import Path

from ._source import OPTIONS


def compiled(text: str, *, architecture: int) -> tuple[str, bytes]:
    """Return the kind and code of a source compiled for a compute capability such as 90.

    The kind is "cubin", or "ptx" for the newest architecture that NVRTC knows if it does not know
    this one.

    Raises
    ------
    RuntimeError
        If the source has errors, with the compiler's log.
    """
    from cupy.cuda import nvrtc

    newest = max(nvrtc.getSupportedArchs())
    code = f"sm_{architecture}" if architecture <= newest else f"compute_{newest}"
    program = nvrtc.createProgram(text, "pyops.cu", [], [])
    try:
        nvrtc.compileProgram(program, [*OPTIONS, f"--gpu-architecture={code}"])
        if architecture > newest:
            return "ptx", nvrtc.getPTX(program)
        return "cubin", nvrtc.getCUBIN(program) + b"\0"  # CuPy drops the last byte
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)


def cached(text: str, architecture: int) -> Path:
    """Return the cached file with the machine code of a source."""
    from cupy.cuda import nvrtc

    identity = "\0".join([text, *OPTIONS, str(architecture), str(nvrtc.getVersion())])
    name = hashlib.sha256(identity.encode()).hexdigest()[:40]
    for kind in "cubin", "ptx":
        path = folder() / f"{name}.{kind}"
        if path.exists():
            return path
    kind, code = compiled(text, architecture=architecture)
    path = folder() / f"{name}.{kind}"
    handle, draft = tempfile.mkstemp(dir=folder())
    with os.fdopen(handle, "wb") as file:
        file.write(code)
    os.replace(draft, path)  # atomic if another process writes the same file
    return path


@functools.cache
def folder() -> Path:
    """Return PYOPS_CACHE_DIR or the user's cache directory.

    If it is not writeable, returns a temporary directory of this process.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    wanted = Path(os.environ.get("PYOPS_CACHE_DIR") or os.path.join(caches, "pyops"))
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError as error:
        print(f"pyops: kernels are not kept, {wanted}: {error}", file=sys.stderr)
        return Path(_temporary().name)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pyops-")
