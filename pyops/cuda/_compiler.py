"""Machine code of the CUDA sources: compiled by NVRTC on first use, then cached on disk.

CuPy's own compilation would add `-ftz=true`, which flushes subnormal numbers to zero.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .. import _cache
from ._source import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path


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
        path = _cache.folder() / f"{name}.{kind}"
        if path.exists():
            return path
    kind, code = compiled(text, architecture=architecture)
    return _cache.write(f"{name}.{kind}", code)
