"""Static type checks where PyTorch and JAX are installed; `./run lint` has neither."""

import subprocess
import sys
from pathlib import Path

import pytest

import pyops

ROOT = Path(__file__).resolve().parents[2]


def assert_checked(package):
    """Assert that mypy, as pyproject.toml configures it, finds no error in a package."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"]
    found = subprocess.run(
        [*command, "--python-executable", sys.executable, "--package", package],
        cwd=Path(pyops.__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
