"""Programs of users in Fortran and C: compiled, run, and their gradients checked."""

import os
import re
import shutil
import subprocess

import pytest

from .. import ROOT

EXAMPLES = ROOT / "examples" / "fortran"
FC = os.environ.get("FC", "gfortran")


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")


def run(*command, cwd=None, **environment):
    """Return the output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}"
    return done.stdout


def check_gradients(output):
    """Run an example, which compares a slope with a central difference and fails if they differ."""
    slope, difference = map(float, re.findall(r"-?\d+\.\d+", output))
    assert slope == pytest.approx(difference, rel=1e-6)


def build_by_cmake(folder, *options):
    """Build and run the examples."""
    need("cmake")
    environment = {} if shutil.which("make") else {"CMAKE_GENERATOR": "Ninja"}
    run("cmake", "-S", EXAMPLES, "-B", folder, *options, **environment)
    run("cmake", "--build", folder)
    for example in "gno_conv", "gno_conv_c":
        check_gradients(run(folder / example))
