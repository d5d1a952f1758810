"""Operators that programs add to the tape, and the example of one."""

import re

import pytest

from .compilers import command
from .test_nodes import EXAMPLES, UNCHECKED, expanded

pytestmark = pytest.mark.bare


@pytest.mark.parametrize("variant", ["r8", "r4"])
def test_derivatives(build, sources, variant):
    """All derivatives against differences, and what is refused."""
    build.run(*expanded(sources, variant, "checking", "user_operators"))


def test_limiter(build):
    """The example agrees with differences, and finds the wave."""
    output = command(build.link(EXAMPLES / "limiter.f90", flags=UNCHECKED[build.compiler]))
    numbers = [float(n) for n in re.findall(r"-?\d\.\d+(?:E[+-]\d+)?", output)]
    slope, forward, curvature, before, after, start, end = numbers
    assert max(slope, curvature) < 1e-5
    assert forward < 1e-12
    assert after < 1e-3 * before
    assert end < 0.5 * start
