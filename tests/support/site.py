"""The extensions that write the pages of the site."""

import importlib
import sys

from .. import ROOT

DOCS = ROOT / "docs"


def load(name):
    """Return the module of an extension, and leave the path as it was."""
    path = sys.path[:]
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
