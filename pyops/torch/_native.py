"""Kernels in C++ for calls of compiled functions, if they were built for this PyTorch.

`python -m pyops.torch.cpp` builds them; without them, such calls are computed by Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import warnings
from pathlib import Path

import torch

from .. import __version__, _cache
from ..__main__ import flags
from .._call.threads import limits

_STEM = "torch-"


def file_name() -> str:
    """Return the name of the library in the cache, by all that it is built from."""
    package = Path(__file__).parent.parent
    sources = package / "torch" / "cpp", package / "ops", package / "_schema"
    given = [__version__, torch.__version__, sys.version, *flags()]
    found = hashlib.sha256("\0".join(given).encode())
    for file in sorted(f for s in sources for f in s.iterdir() if f.is_file()):
        found.update(file.read_bytes())
    return f"{_STEM}{found.hexdigest()[:40]}.so"


def load() -> bool:
    """Load the library if there is one, and return whether there is."""
    folder = _cache.wanted()
    if folder is None or not any(folder.glob(f"{_STEM}*")):
        return False
    path = folder / file_name()
    try:
        if not path.exists():
            return False
        register = ctypes.CDLL(str(path)).pyops_torch_register
    except (OSError, AttributeError) as error:
        message = str(error)
    else:
        register.restype = ctypes.c_char_p
        message = (register(ctypes.c_void_p(limits.buffer_info()[0])) or b"").decode()
    if message:
        warnings.warn(f"pyops.torch: {path} is not used: {message}", stacklevel=2)
    return not message
