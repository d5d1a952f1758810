"""The folder of code that is compiled on the machine of the user."""

import functools
import os
import sys
import tempfile
from pathlib import Path


def wanted() -> Path:
    """Return PYOPS_CACHE_DIR or the user's cache directory, whether it exists or not."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PYOPS_CACHE_DIR") or os.path.join(caches, "pyops"))


@functools.cache
def folder() -> Path:
    """Return that folder, or a temporary one of this process if it is not writeable."""
    found = wanted()
    try:
        found.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=found):
            return found
    except OSError as error:
        print(f"pyops: compiled code is not kept, {found}: {error}", file=sys.stderr)
        return Path(_temporary().name)


def write(name: str, content: bytes) -> Path:
    """Write a file of the folder, which other processes see whole or not at all."""
    path = folder() / name
    handle, draft = tempfile.mkstemp(dir=folder())
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(draft, path)
    return path


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pyops-")
