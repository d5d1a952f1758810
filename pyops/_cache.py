"""The folder of code that is compiled on the machine of the user."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path


def wanted() -> Path | None:
    """Return PYOPS_CACHE_DIR or the user's cache directory, whether it exists or not.

    None if the user has no home directory.
    """
    chosen = os.environ.get("PYOPS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(caches) / "pyops"


@functools.cache
def folder() -> Path:
    """Return that folder, or a temporary one of this process if it is not writeable."""
    found = wanted()
    try:
        if found is None:
            raise OSError("there is no home directory; PYOPS_CACHE_DIR may name a folder")
        found.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=found):
            return found
    except OSError as error:
        print(f"pyops: compiled code is not kept, {found or ''}: {error}", file=sys.stderr)
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
