"""Blocks of README and the site that take CuPy arrays run on a device."""

import ast
import re
import subprocess
import sys

import pytest

from ... import ROOT
from ...support import pages


def takes_cupy(path):
    found = (b for b in pages.blocks(path) if pages.is_run(b) and b.language in ("python", "pycon"))
    return any("cupy" in pages.packages(ast.parse(pages.source(block))) for block in found)


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [str(path.relative_to(ROOT)) for path in DOCUMENTS if path.exists() and takes_cupy(path)]


def test_pages_are_found():
    assert {"README.md", "docs/guide/gpu.md"} <= {*PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_blocks(page, tmp_path):
    """All blocks of the page run in order; none is skipped for want of CuPy or a device."""
    command = [sys.executable, pages.__file__, str(ROOT / page)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"there is no .*\bcupy\b", done.stdout), done.stdout
